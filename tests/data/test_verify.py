from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hire.data.dataset import FewShotDataset
from hire.data.verify import verify
from hire.errors import HireError
from tests.conftest import write_layout


def test_a_built_dataset_without_and_with_damage(umls: FewShotDataset, tmp_path: Path) -> None:
    umls.save(tmp_path / "umls")
    report = verify(tmp_path / "umls")
    assert report.problems == [] and {file.status for file in report.files} == {"unchanged"}
    (tmp_path / "umls" / "facts.npy").unlink()
    path = tmp_path / "umls" / "task_pairs.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    report = verify(tmp_path / "umls")
    assert sorted(Path(str(problem.file)).name for problem in report.problems) == ["facts.npy", "task_pairs.npy"]


def test_ids_that_are_out_of_range(umls: FewShotDataset, tmp_path: Path) -> None:
    broken = replace(umls, task_pairs=np.full_like(umls.task_pairs, 135))
    broken.save(tmp_path / "broken")
    assert "an id that is out of range" in verify(tmp_path / "broken").problems[0].message


def test_a_published_layout(tmp_path: Path) -> None:
    report = verify(write_layout(tmp_path, dev_tasks__json=None))
    assert {file.name: file.status for file in report.files}["dev_tasks.json"] == "missing"
    assert any("is missing" in problem.message for problem in report.problems)


def test_no_dataset_at_all(tmp_path: Path) -> None:
    with pytest.raises(HireError, match="contains no dataset"):
        verify(tmp_path)
    with pytest.raises(HireError, match="no such directory"):
        verify(tmp_path / "none")
