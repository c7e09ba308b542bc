import re

import pytest

from hire.data.published.checksums import KNOWN, KnownDataset, dataset_named, differing, known_form, recognize
from hire.errors import HireError

FILES = {
    "path_graph",
    "train_tasks.json",
    "dev_tasks.json",
    "test_tasks.json",
    "rel2candidates.json",
    "e1rel_e2.json",
    "ent2ids",
    "relation2ids",
}


def published(dataset: KnownDataset) -> dict[str, str]:
    return {filename: forms[0].sha256 for filename, forms in dataset.files.items()}


@pytest.mark.parametrize("name", ["nell-one", "wiki-one", "fb15k237-one"])
def test_every_file_of_a_dataset_is_known_by_a_checksum_of_its_own(name: str) -> None:
    dataset = dataset_named(name)
    forms = [form for forms in dataset.files.values() for form in forms]
    assert dataset.name == name
    assert set(dataset.files) == FILES
    assert dataset.url is None or dataset.url.startswith("https://github.com/alexhw15/HiRe/releases/download/ckpt/")
    assert all(re.fullmatch("[0-9a-f]{64}", form.sha256) and form.size > 0 for form in forms)
    assert len({form.sha256 for form in forms}) == len({form.size for form in forms}) == len(forms)


def test_the_candidates_of_nell_one_are_known_in_two_forms() -> None:
    nell = KNOWN["nell-one"]
    candidates = nell.files["rel2candidates.json"]
    assert [(form.form, form.size) for form in candidates] == [("published", 10_067_174), ("rebuilt", 9_271_601)]
    assert [known_form(nell, "rel2candidates.json", form.sha256) for form in candidates] == ["published", "rebuilt"]


def test_a_checksum_counts_for_its_own_file_only() -> None:
    nell = KNOWN["nell-one"]
    assert known_form(nell, "path_graph", nell.files["ent2ids"][0].sha256) is None
    assert known_form(nell, "notes.txt", nell.files["ent2ids"][0].sha256) is None


def test_a_directory_is_recognized_by_the_files_that_it_shares() -> None:
    nell, wiki = published(KNOWN["nell-one"]), published(KNOWN["wiki-one"])
    assert recognize(wiki) is KNOWN["wiki-one"]
    assert recognize({"path_graph": "0" * 64, "ent2ids": nell["ent2ids"]}) is KNOWN["nell-one"]
    assert recognize({**nell, "path_graph": wiki["path_graph"]}) is KNOWN["nell-one"]
    assert recognize({**wiki, "path_graph": nell["path_graph"]}) is KNOWN["wiki-one"]
    assert recognize({"path_graph": "0" * 64, "notes.txt": nell["ent2ids"]}) is None
    assert recognize({}) is None


def test_only_files_of_no_known_form_differ() -> None:
    nell = KNOWN["nell-one"]
    checksums = {**published(nell), "rel2candidates.json": nell.files["rel2candidates.json"][1].sha256}
    assert differing(nell, {**checksums, "notes.txt": "0" * 64}) == []
    del checksums["path_graph"]
    assert differing(nell, {**checksums, "ent2ids": "0" * 64}) == ["ent2ids"]


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(HireError, match="'fb15k'") as error:
        dataset_named("fb15k")
    assert error.value.problems[0].remedy == "choose from fb15k237-one, nell-one, wiki-one"
