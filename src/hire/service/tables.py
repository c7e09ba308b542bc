"""The tables of a state file."""

from __future__ import annotations

VERSION = 3
SCHEMA = """
CREATE TABLE graphs (
  id TEXT PRIMARY KEY,
  entities TEXT NOT NULL,
  created TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE relations (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  predicate TEXT,
  graph TEXT REFERENCES graphs (id),
  scope TEXT NOT NULL,
  candidates TEXT,
  version INTEGER NOT NULL DEFAULT 1,
  created TEXT NOT NULL,
  by TEXT NOT NULL,
  deleted TEXT
);

CREATE TABLE pairs (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  relation TEXT NOT NULL REFERENCES relations (id),
  head TEXT NOT NULL,
  tail TEXT NOT NULL,
  UNIQUE (relation, head, tail)
);

-- The log of verdicts. An undo is an entry of its own; the tail is empty where the verdict is about the head alone.
CREATE TABLE entries (
  entry INTEGER PRIMARY KEY AUTOINCREMENT,
  relation TEXT NOT NULL REFERENCES relations (id),
  head TEXT NOT NULL,
  tail TEXT NOT NULL,
  verdict TEXT NOT NULL CHECK (verdict IN ('accept', 'reject', 'unsure', 'no_tail', 'undo')),
  undoes INTEGER UNIQUE REFERENCES entries (entry),
  by TEXT NOT NULL,
  client TEXT NOT NULL,
  at TEXT NOT NULL,
  model TEXT NOT NULL,
  confidence REAL,
  batch TEXT REFERENCES batches (id)
);
CREATE INDEX entries_of_head ON entries (relation, head);
CREATE INDEX entries_of_batch ON entries (batch) WHERE batch IS NOT NULL;
CREATE TRIGGER entries_stay BEFORE UPDATE ON entries BEGIN SELECT RAISE (ABORT, 'the log is append-only'); END;
CREATE TRIGGER entries_last BEFORE DELETE ON entries BEGIN SELECT RAISE (ABORT, 'the log is append-only'); END;

CREATE TABLE batches (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  relation TEXT NOT NULL REFERENCES relations (id),
  kind TEXT NOT NULL CHECK (kind IN ('accept', 'import', 'revert')),
  by TEXT NOT NULL,
  at TEXT NOT NULL,
  threshold REAL,
  entries INTEGER NOT NULL,
  reverts TEXT UNIQUE REFERENCES batches (id)
);

-- What follows from the log: the verdict that holds for each pair. A person has checked it unless it came by a batch.
CREATE TABLE judged (
  relation TEXT NOT NULL,
  head TEXT NOT NULL,
  tail TEXT NOT NULL,
  verdict TEXT NOT NULL,
  entry INTEGER NOT NULL,
  confidence REAL,
  checked INTEGER NOT NULL,
  PRIMARY KEY (relation, head, tail)
) WITHOUT ROWID;

-- The heads that a relation is completed for, with the pair to judge next; `pending` is the job that will answer them.
CREATE TABLE heads (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  relation TEXT NOT NULL,
  head TEXT NOT NULL,
  type TEXT,
  state TEXT NOT NULL DEFAULT 'empty',
  tail TEXT,
  score REAL,
  confidence REAL,
  usefulness REAL NOT NULL DEFAULT 2,
  shuffle REAL NOT NULL,
  audited INTEGER NOT NULL DEFAULT 1,
  version INTEGER NOT NULL DEFAULT 0,
  pending TEXT,
  UNIQUE (relation, head)
);
CREATE INDEX heads_useful ON heads (relation, state, usefulness, number);
CREATE INDEX heads_confident ON heads (relation, state, confidence);
CREATE INDEX heads_pending ON heads (pending, number) WHERE pending IS NOT NULL;

CREATE TABLE suggestions (
  relation TEXT NOT NULL,
  head TEXT NOT NULL,
  place INTEGER NOT NULL,
  tail TEXT NOT NULL,
  score REAL NOT NULL,
  confidence REAL,
  PRIMARY KEY (relation, head, place)
) WITHOUT ROWID;
CREATE INDEX suggestions_confident ON suggestions (relation, confidence);

CREATE TABLE jobs (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  relation TEXT NOT NULL REFERENCES relations (id),
  state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'done', 'cancelled', 'failed')),
  k INTEGER NOT NULL,
  heads INTEGER NOT NULL,
  done INTEGER NOT NULL DEFAULT 0,
  seconds REAL NOT NULL DEFAULT 0,
  created TEXT NOT NULL,
  ended TEXT,
  by TEXT NOT NULL,
  problem TEXT
);

CREATE TABLE requests (
  key TEXT PRIMARY KEY,
  fingerprint TEXT NOT NULL,
  status INTEGER NOT NULL,
  headers TEXT NOT NULL,
  body TEXT NOT NULL,
  at TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE events (
  event INTEGER PRIMARY KEY AUTOINCREMENT,
  relation TEXT,
  kind TEXT NOT NULL,
  data TEXT NOT NULL
);
"""
