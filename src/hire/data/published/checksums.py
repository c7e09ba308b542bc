"""The published few-shot datasets: where they come from, and the checksums of their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hire.errors import HireError


@dataclass(frozen=True)
class KnownFile:
    """One form of a file: its size and checksum, and a word for where it comes from."""

    size: int
    sha256: str
    form: str = "published"


@dataclass(frozen=True)
class KnownDataset:
    """A dataset: its archive, if it has one, and the accepted forms of each file, the published one first."""

    name: str
    title: str
    url: str | None
    files: Mapping[str, tuple[KnownFile, ...]]


_RELEASE = "https://github.com/alexhw15/HiRe/releases/download/ckpt"

_NELL_ONE = KnownDataset(
    "nell-one",
    "NELL-One",
    f"{_RELEASE}/Nell-data-Hire.zip",
    {
        "path_graph": (KnownFile(15_545_452, "2656b41f1e50f2b0d470abd6ee89f6485bf4e6e8be2dc468ebb716b3b1968936"),),
        "train_tasks.json": (KnownFile(842_884, "b3bf56da6112442b9243efff319c206b431ada6292aad8e1f73dc610d905f53f"),),
        "dev_tasks.json": (KnownFile(90_023, "b6fe8e053b428fe087fb662593fde6d3b7e6c83219f9aa78d2f219d25e1aebf0"),),
        "test_tasks.json": (KnownFile(217_610, "5a0d6a7e1f359100ba313e5811f75e39d23a7089497e68ce4c06d354fdca72ab"),),
        "rel2candidates.json": (
            KnownFile(10_067_174, "8337cdcc7619c9889211e25677263c98670935a688b2a8d483fa6b0183d3b77e"),
            KnownFile(9_271_601, "859b484a6f0b9105c1386958bb26ea4210e775c7bd1d720cdd3f76fb92021a43", "rebuilt"),
        ),
        "e1rel_e2.json": (KnownFile(802_155, "7a3a727f22876262eccf3e39b3344e5439b4e0d591397a06eda86f9b2c4b07fd"),),
        "ent2ids": (KnownFile(2_789_032, "a49f7b531e200644f0a0208556e79898e056b1f886a99665ca9e6fb8016e91f7"),),
        "relation2ids": (KnownFile(23_456, "48e97469d87aa93f839b92f67b1a05c52af59a3644419a4d7359a6ebd7bc3ddd"),),
    },
)

_WIKI_ONE = KnownDataset(
    "wiki-one",
    "Wiki-One",
    f"{_RELEASE}/Wiki-data-Hire.zip",
    {
        "path_graph": (KnownFile(119_465_065, "888f7cd98f52863d2a455a3e8696c79b235ec7b89b2c1f18467af1241774cbca"),),
        "train_tasks.json": (KnownFile(2_067_901, "2faa74cfdd5c481ca8aaf7b1fff20cdf76aa8e247d23dbbc65f10a43021be53a"),),
        "dev_tasks.json": (KnownFile(221_051, "eb9770cd1194a720e77626b284d65ceb3973c800cad1dabfc527f0b1559e9a48"),),
        "test_tasks.json": (KnownFile(523_869, "900eac9aad94b4f1d0dadc6fe19d34fba27e2236f46ead2633cb16b7077f9a44"),),
        "rel2candidates.json": (
            KnownFile(9_286_123, "28fa66619efd8e4b6b8e92d1cf91d8134734798a39779c40412c81abaf2d2f0b"),
        ),
        "e1rel_e2.json": (KnownFile(2_219_395, "1d4d01a823bf961aed196371d82a098f84c056e2d2e142e88c25469dbee39767"),),
        "ent2ids": (KnownFile(103_116_454, "e32b91649acfd5bf39e8397bdce2ae5faaaa778900fd074cbf8c8b09224f592f"),),
        "relation2ids": (KnownFile(20_012, "93ff0c161a7189cb179fd4c8b79184a9330a71444ead5c68025e7090d30b5a8d"),),
    },
)

# By the authors of P-INT (Xu et al., Findings of EMNLP 2021), as files in their repository.
_FB15K237_ONE = KnownDataset(
    "fb15k237-one",
    "FB15k237-One",
    None,
    {
        "path_graph": (KnownFile(22_863_368, "429d669dec61bccf1466bd94270112ec1f7345045259d4f647d86792744363fe"),),
        "train_tasks.json": (KnownFile(704_259, "adf1a3708605526a6a03b38151ae8c79629a28830a60b195468822af32abf3f2"),),
        "dev_tasks.json": (KnownFile(79_118, "b64ef6f27362df75d851c5fa139fe49108f80fc4ee703e840f11d6a3cbe301da"),),
        "test_tasks.json": (KnownFile(228_972, "b4dcb3492d8ed1e0ce7ecad049e60fb059e04f6902646e52f0e6ade1a249ccbf"),),
        "rel2candidates.json": (KnownFile(51_969, "ed40be8c2e8626d148e396e50923b1017eada01021944202db41717699e94893"),),
        "e1rel_e2.json": (KnownFile(651_441, "ff3eb4e0bc454d82216292367837e2c543682536c6978e2021afdad52a2c9acc"),),
        "ent2ids": (KnownFile(275_499, "aedf223683c37c129e38e0e10a3d25ae9a4f8e2260b70cd4e0a11adc0869d376"),),
        "relation2ids": (KnownFile(27_584, "232bf901c40b5fb9f7204ea9ba89328f68e5a2ed7c4881f5acd300ce5c02e3df"),),
    },
)

KNOWN = {dataset.name: dataset for dataset in (_NELL_ONE, _WIKI_ONE, _FB15K237_ONE)}


def dataset_named(name: str) -> KnownDataset:
    """The known dataset with this name."""
    if name not in KNOWN:
        raise HireError(f"unknown published dataset {name!r}", remedy=f"choose from {', '.join(sorted(KNOWN))}")
    return KNOWN[name]


def known_form(dataset: KnownDataset, filename: str, sha256: str) -> str | None:
    """The form of a dataset's file with this checksum, or None if it is unknown."""
    return next((known.form for known in dataset.files.get(filename, ()) if known.sha256 == sha256), None)


def recognize(checksums: Mapping[str, str]) -> KnownDataset | None:
    """The known dataset that has the most files, at least one, in common with a directory (file name -> SHA-256)."""

    def shared(dataset: KnownDataset) -> int:
        return sum(known_form(dataset, filename, sha256) is not None for filename, sha256 in checksums.items())

    best = max(KNOWN.values(), key=shared)
    return best if shared(best) else None


def differing(dataset: KnownDataset, checksums: Mapping[str, str]) -> list[str]:
    """The files in a directory (file name -> SHA-256) that differ from every known form."""
    return [
        filename
        for filename in dataset.files
        if filename in checksums and known_form(dataset, filename, checksums[filename]) is None
    ]
