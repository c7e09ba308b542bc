"""Bytes to triples: tables, RDF, SPARQL endpoints and downloads."""
