"""Writes do what was asked: devices, pipes, links, permissions, full and read-only disks, files that change in use."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from hire.data.dataset import FewShotDataset
from hire.data.open import open_dataset
from hire.errors import HireError
from hire.inference.model import TrainedModel, load
from hire.service.relations import RelationService
from hire.service.store import RelationStore
from hire.training.run import CALIBRATION, MODEL
from hire.util.tensors import load_tensors, save_tensors
from tests.faults.support import torture
from tests.support import random_model

Run = Callable[..., Result]
SMALL = ("--system", "mean-translation", "--set", "embedding.steps=3", "--set", "embedding.dimension=100")
COMMAND = (sys.executable, "-m", "hire")


@pytest.fixture
def predict(umls_run: Path, tmp_path: Path) -> tuple[str | Path, ...]:
    references, heads = tmp_path / "refs.tsv", tmp_path / "heads.txt"
    references.write_text("virus\torganism\nbacterium\torganism\n")
    heads.write_text("plant\ncell\n")
    return "predict", umls_run, "--references", references, "-k", "2", "--heads", heads


def test_an_output_that_is_no_file_is_written_into(run: Run, predict: tuple[str | Path, ...], tmp_path: Path) -> None:
    assert run(*predict, "-o", tmp_path / "out.tsv").exit_code == 0
    expected = (tmp_path / "out.tsv").read_bytes()
    (tmp_path / "link").symlink_to(tmp_path / "behind")
    assert run(*predict, "-o", tmp_path / "link").exit_code == 0
    assert (tmp_path / "link").is_symlink() and (tmp_path / "behind").read_bytes() == expected
    os.mkfifo(tmp_path / "pipe")
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    assert run(*predict, "-o", tmp_path / "pipe").exit_code == 0
    reader.join()
    assert found == [expected] and (tmp_path / "pipe").is_fifo()
    assert run(*predict, "-o", "/dev/null").exit_code == 0
    assert Path("/dev/null").is_char_device()
    full = run(*predict, "-o", "/dev/full")
    assert full.exit_code == 2 and "no space left on device" in full.output and "Traceback" not in full.output
    refused = run(*predict, "-o", "/dev/null", "--resume")
    assert refused.exit_code == 2 and "cannot be resumed" in refused.output


@torture
def test_heads_from_a_pipe_are_all_answered_and_exactly(
    umls_run: Path, predict: tuple[str | Path, ...], tmp_path: Path
) -> None:
    command = [*COMMAND, *map(str, predict[:-1]), "/dev/stdin", "-o", str(tmp_path / "out.tsv")]
    names = ["plant", "cell", "tissue"] * 2_000
    done = subprocess.run(command, input="\n".join(names), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and "6,000 heads" in done.stderr, done.stderr
    lines = (tmp_path / "out.tsv").read_text().splitlines()[1:]
    assert [line.split("\t")[0] for line in lines[::2]] == names
    wrong = subprocess.run(command, input="cell\ntissue \n", capture_output=True, text=True, timeout=300, check=False)
    assert wrong.returncode == 2 and "/dev/stdin:2: unknown entity 'tissue '" in wrong.stderr
    twice = [*COMMAND, *map(str, predict[:2]), "--references", "/dev/stdin", "--heads", "/dev/stdin"]
    both = subprocess.run(twice, input="cell\ttissue\n", capture_output=True, text=True, timeout=300, check=False)
    assert both.returncode == 2 and "can be read for one option only" in both.stderr


def test_resuming_compares_all_that_answers_depend_on(
    run: Run, predict: tuple[str | Path, ...], umls_run: Path, tmp_path: Path
) -> None:
    model = tmp_path / "run"
    subprocess.run(["cp", "-r", str(umls_run), str(model)], check=True)
    output, references = tmp_path / "out.tsv", tmp_path / "refs.tsv"
    command = ("predict", model, *predict[2:], "-o", output, "--resume")
    assert run(*command).exit_code == 0
    assert "already complete" in run(*command).output

    def refused(what: str, *options: str) -> None:
        result = run(*command, *options)
        assert result.exit_code == 2 and f"was written with different settings: {what}" in result.output, result.output

    refused("threshold", "--threshold", "0.1")
    refused("known", "--known")
    before = references.read_text()
    references.write_text(before + "fungus\torganism\n")
    refused("references")
    references.write_text(before)
    assert run("calibrate", model, "--shots", "1").exit_code == 0
    refused("calibration")
    (model / CALIBRATION).unlink()
    refused("calibration")
    weights = load_tensors(model / MODEL)
    save_tensors(model / MODEL, {name: tensor * 1.01 for name, tensor in weights.items()})
    refused("model")
    (tmp_path / "heads.txt").write_text("cell\nplant\n")
    save_tensors(model / MODEL, weights)
    subprocess.run(["cp", str(umls_run / CALIBRATION), str(model / CALIBRATION)], check=True)
    other = run(*command)
    assert other.exit_code == 2 and "was written for other heads" in other.output


@pytest.mark.parametrize("umask", [0o077, 0o027])
def test_new_files_respect_the_umask(
    umask: int,
    run: Run,
    umls: FewShotDataset,
    predict: tuple[str | Path, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HIRE_CACHE", str(tmp_path / "made" / "cache"))
    made = tmp_path / "made"
    before = os.umask(umask)
    try:
        made.mkdir()
        assert run("train", "umls-one", "-o", made / "run", "--no-calibrate", *SMALL).exit_code == 0
        umls.save(made / "dataset")
        assert run(*predict, "-o", made / "out.tsv").exit_code == 0
        assert run("pretrain", "umls-one", "--steps", "3", "-o", made / "embeddings.safetensors").exit_code == 0
        RelationStore(made / "state").close()
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o777 for path in made.rglob("*")}
    assert len(modes) > 10
    assert not {path: oct(mode) for path, mode in modes.items() if mode & umask}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB, where one can be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("a small disk cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path, leave: int) -> None:
    """Fill a disk but for some bytes."""
    left = os.statvfs(disk)
    (disk / "ballast").write_bytes(bytes(max(0, left.f_bavail * left.f_bsize - leave)))


def test_a_full_disk_leaves_nothing_half(
    run: Run, umls: FewShotDataset, predict: tuple[str | Path, ...], small_disk: Path
) -> None:
    umls.save(small_disk / "dataset")
    store = RelationStore(small_disk / "state")
    kept = store.add("kept", [("a", "b")])
    fill(small_disk, 8_192)
    with pytest.raises(HireError, match=r"no space left|full"):
        umls.save(small_disk / "dataset", overwrite=True)
    assert len(open_dataset(small_disk / "dataset").tasks) == len(umls.tasks)
    with pytest.raises(HireError, match="full"):
        store.add("too much", [(f"head {i}" * 50, f"tail {i}" * 50) for i in range(500)])
    assert store.all() == [kept]
    store.close()
    result = run("train", "umls-one", "-o", small_disk / "run", "--no-calibrate", *SMALL)
    assert result.exit_code == 2 and "Traceback" not in result.output
    assert not list(small_disk.rglob(MODEL))
    (small_disk / "ballast").unlink()
    umls.save(small_disk / "dataset", overwrite=True)
    again = RelationStore(small_disk / "state")
    assert again.all() == [kept]
    again.close()
    assert sorted(path.name for path in small_disk.iterdir() if path.name != "run") == [
        "dataset",
        "state",
        "state-journal",
    ]


def test_a_read_only_disk_is_read_and_told(
    run: Run, umls: FewShotDataset, predict: tuple[str | Path, ...], small_disk: Path
) -> None:
    umls.save(small_disk / "dataset")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert len(open_dataset(small_disk / "dataset").tasks) == len(umls.tasks)
    for command in (
        (*predict, "-o", small_disk / "out.tsv"),
        ("train", "umls-one", "-o", small_disk / "run", "--system", "popularity"),
        ("serve", predict[1], "--port", "0", "--state", small_disk / "state"),
    ):
        result = run(*command)
        assert result.exit_code == 2 and "read-only file system" in result.output and "Traceback" not in result.output


def test_a_dataset_that_is_cut_while_it_is_served_is_told(
    umls_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays in memory do not mind; those that are mapped are checked before every answer."""
    for limit in (1 << 30, 0):
        monkeypatch.setattr("hire.util.files.LARGEST_IN_MEMORY", limit)
        folder = tmp_path / f"umls-{limit}"
        subprocess.run(["cp", "-r", str(umls_folder), str(folder)], check=True)
        service = RelationService(random_model(open_dataset(folder)), RelationStore(tmp_path / f"state-{limit}"))
        taught = service.teach("part_of", [("virus", "organism"), ("fungus", "organism")])
        before = service.answers(taught.id, "plant", 3, True, None)
        for path in folder.rglob("*.npy"):
            os.truncate(path, 0)
        if limit:
            assert service.answers(taught.id, "plant", 3, True, None) == before
            service.store.close()
            continue
        changed = pytest.raises(HireError, match="was changed or removed while it was in use")
        with changed:
            service.answers(taught.id, "plant", 3, True, None)
        with changed:
            service.teach("again", [("cell", "tissue")])
        with changed:
            service.model.search("ce")
        service.store.close()


def test_weights_that_are_cut_while_they_are_used_do_not_matter(umls_run: Path, tmp_path: Path) -> None:
    model = tmp_path / "run"
    subprocess.run(["cp", "-r", str(umls_run), str(model)], check=True)
    trained = load(model)
    before = trained.teach([("virus", "organism")]).predict("plant", 3)
    for path in model.rglob("*"):
        os.truncate(path, 0) if path.is_file() else None
    assert load(umls_run).teach([("virus", "organism")]).predict("plant", 3) == before
    assert trained.teach([("virus", "organism")]).predict("plant", 3) == before


def test_a_state_that_is_gone_confirms_nothing(umls: FewShotDataset, tmp_path: Path) -> None:
    service = RelationService(random_model(umls), RelationStore(tmp_path / "state"))
    kept = service.teach("kept", [("virus", "organism"), ("fungus", "organism")])
    (tmp_path / "state").unlink()
    for change in (
        lambda: service.teach("late", [("cell", "tissue")]),
        lambda: service.judge(kept.id, "plant", "organism", "accepted"),
        lambda: service.delete(kept.id),
    ):
        with pytest.raises(HireError, match="was removed or replaced while it was in use"):
            change()
    assert service.relations() == [kept]  # what was confirmed before, and nothing else
    service.store.close()


def test_scores_that_are_no_numbers_are_never_an_answer(umls: FewShotDataset) -> None:
    model: TrainedModel = random_model(umls)
    model.system.entities[:] = float("nan")  # type: ignore[attr-defined]
    with pytest.raises(HireError, match="not numbers"):
        model.teach([("virus", "organism")]).predict("plant", 3)
