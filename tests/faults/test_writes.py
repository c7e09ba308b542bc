"""Writes do what was asked: devices, pipes, links, permissions, full and read-only disks, files that change in use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result
from starlette.testclient import TestClient

from hire.data.dataset import FewShotDataset
from hire.data.open import open_dataset
from hire.errors import HireError
from hire.inference.model import TrainedModel, load
from hire.service.app import create_app
from hire.service.relations import Draft, RelationTable
from hire.service.service import Service
from hire.service.store import Store
from hire.training.run import CALIBRATION, MODEL
from hire.util.tensors import load_tensors, save_tensors
from tests.faults.support import torture
from tests.service.stored import everything_in, taught
from tests.support import SECONDS, random_model, request

Run = Callable[..., Result]
SMALL = ("--system", "mean-translation", "--set", "embedding.steps=3", "--set", "embedding.dimension=100")
COMMAND = (sys.executable, "-m", "hire")


TEACH = {"name": "part_of", "references": [{"head": "virus", "tail": "organism"}]}


@contextmanager
def served(model: TrainedModel, state: Path) -> Iterator[TestClient]:
    """A service in this process."""
    store = Store(state)
    try:
        with TestClient(create_app(Service(model, store)), base_url="http://127.0.0.1") as client:
            yield client
    finally:
        store.close()


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


def test_an_output_never_replaces_what_is_read(run: Run, predict: tuple[str | Path, ...], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "heads.txt")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for name in ("heads.txt", "refs.tsv", "link"):
        result = run(*predict, "-o", tmp_path / name)
        assert result.exit_code == 2 and "is read by this command" in result.output
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_links_in_a_circle_and_folders_are_told(run: Run, predict: tuple[str | Path, ...], tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    pretrain = ("pretrain", "umls-one", "--steps", "1000000000", "-o")  # would take days: it is told before
    for command in (
        (*predict, "-o", tmp_path / "circle"),
        ("serve", predict[1], "--port", "0", "--state", tmp_path / "circle"),
        (*pretrain, tmp_path / "circle"),
        (*pretrain, tmp_path),
        (*pretrain, tmp_path / "nowhere" / "file"),
    ):
        result = run(*command)
        assert result.exit_code == 2 and str(tmp_path) in result.output, result.output
        assert not isinstance(result.exception, RuntimeError)


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
        taught(made / "state", 1)
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
    taught(small_disk / "state", 1)
    kept = everything_in(small_disk / "state")
    store = Store(small_disk / "state")
    fill(small_disk, 8_192)
    with pytest.raises(HireError, match=r"no space left|full"):
        umls.save(small_disk / "dataset", overwrite=True)
    assert len(open_dataset(small_disk / "dataset").tasks) == len(umls.tasks)
    with pytest.raises(HireError, match=r"full|cannot be read or written"):
        RelationTable(store).add(Draft("too much", [(f"head {i}" * 50, f"tail {i}" * 50) for i in range(500)]))
    store.close()
    result = run("train", "umls-one", "-o", small_disk / "run", "--no-calibrate", *SMALL)
    assert result.exit_code == 2 and "Traceback" not in result.output
    assert not list(small_disk.rglob(MODEL))
    (small_disk / "ballast").unlink()
    umls.save(small_disk / "dataset", overwrite=True)
    assert everything_in(small_disk / "state") == kept
    assert {path.name for path in small_disk.iterdir()} - {"run"} == {"dataset", "state"}


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
        with served(random_model(open_dataset(folder)), tmp_path / f"state-{limit}") as client:
            relation = client.post("/v1/relations", json=TEACH).json()["id"]
            ask = f"/v1/relations/{relation}/answers?head=plant&k=3"
            before = client.get(ask).json()
            assert before["answers"]
            for path in folder.rglob("*.npy"):
                os.truncate(path, 0)
            if limit:
                assert client.get(ask).json() == before
                continue
            for response in (
                client.get(ask),
                client.post("/v1/relations", json=TEACH),
                client.get("/v1/entities?q=ce"),
            ):
                assert response.status_code == 503 and str(tmp_path) not in response.text
                assert "was changed or removed while it was in use" in response.text


@pytest.mark.parametrize("command", ["predict", "serve"])
def test_a_file_that_is_cut_in_the_midst_of_an_answer_ends_with_a_word(
    command: str, umls_folder: Path, predict: tuple[str | Path, ...], tmp_path: Path
) -> None:
    """The system ends the process: by what, and where, is said on standard error."""
    folder = tmp_path / "umls"
    subprocess.run(["cp", "-r", str(umls_folder), str(folder)], check=True)
    code = (
        "import os, sys; from pathlib import Path; from hire.cli import main; from hire.util import files\n"
        "from hire.inference.relation import TaughtRelation as Relation\n"
        "files.LARGEST_IN_MEMORY, score = 0, Relation.candidate_scores\n"
        "def cut(*given):\n"
        "    for path in Path(sys.argv[2]).rglob('*.npy'): os.truncate(path, 0)\n"
        "    return score(*given)\n"
        "Relation.candidate_scores = cut\n"
        "main(sys.argv[1:])\n"
    )
    given = predict[2:] if command == "predict" else ("--port", "0", "--state", tmp_path / "state")
    process = subprocess.Popen(
        [sys.executable, "-c", code, command, str(folder), *map(str, given)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if command == "serve":
        assert process.stdout is not None
        address = process.stdout.readline().split(" at ")[1].split("/  ")[0]
        with pytest.raises(OSError, match=r"closed|reset"):
            request(f"{address}/v1/relations", TEACH)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == -signal.SIGBUS and "Bus error" in errors, errors


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
    with served(random_model(umls), tmp_path / "state") as client:
        kept = client.post("/v1/relations", json=TEACH).json()["id"]
        (tmp_path / "state").unlink()
        for response in (client.post("/v1/relations", json=TEACH), client.delete(f"/v1/relations/{kept}")):
            assert response.status_code == 503 and "nothing can be saved" in response.text
            assert str(tmp_path) not in response.text and "overloaded" not in response.text
        client.get("/v1/relations")
        assert not (tmp_path / "state").exists()  # whoever only reads does not make an empty one


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_scores_that_are_no_numbers_are_never_an_answer(
    score: float, umls: FewShotDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: TrainedModel = random_model(umls)
    scores = model.system.score
    monkeypatch.setattr(model.system, "score", lambda *given: scores(*given).fill_(score))
    with pytest.raises(HireError, match="not numbers"):
        model.teach([("virus", "organism")]).predict("plant", 3)
