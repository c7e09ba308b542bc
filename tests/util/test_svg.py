from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from hire.sampling.picture import MAX_ROWS, context_svg
from hire.util.svg import Label


def test_a_context_is_drawn_with_what_is_shared_marked() -> None:
    neighbors = {
        "head": [
            {"relation": "plays for", "entity": "<Team & Co>", "number": 7},
            {"relation": "r", "entity": "x" * 80, "number": 8},
        ],
        "tail": [{"relation": "plays for_inv", "entity": "<Team & Co>", "number": 7}],
    }
    svg = context_svg({"head": "A", "relation": "knows", "tail": "B", "neighbors": neighbors, "shared": [7]})
    root = ElementTree.fromstring(svg)
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "A — knows → B" in texts and "<Team & Co>" in texts
    assert all(len(text or "") < 60 for text in texts)
    kinds = [element.get("class") for element in root.iter() if element.get("class")]
    assert kinds.count("shared") == 1 and kinds.count("shared-edge") == 2 and kinds.count("pole") == 2


def test_many_neighbors_are_summed_up() -> None:
    neighbors = {"head": [{"relation": "r", "entity": f"e{i}", "number": i} for i in range(50)], "tail": []}
    svg = context_svg({"head": "A", "relation": "r", "tail": "B", "neighbors": neighbors, "shared": []})
    assert f"… {50 - MAX_ROWS + 1} more" in svg and svg.count('class="dot"') == MAX_ROWS


@given(st.text(st.characters(exclude_characters="…"), max_size=300), st.integers(40, 400))
def test_a_label_keeps_its_words_in_lines_that_fit(words: str, width: int) -> None:
    label = Label.of(words, width)
    assert len(label.lines) <= 3 and all(0.6 * 12 * len(line) <= width for line in label.lines)
    titles = [element.findtext("title") for element in ElementTree.fromstring(f"<g>{''.join(label.draw(0, 0))}</g>")]
    if any("…" in line for line in label.lines):
        assert titles == [label.text] * len(label.lines)
    else:
        assert "".join("".join(label.lines).split()) == "".join(label.text.split()) and not any(titles)


def test_labels_are_broken_behind_punctuation_and_shortened_in_the_middle() -> None:
    assert Label.of("body_part_organ_or_organ_component", 150).lines == ("body_part_organ_or_", "organ_component")
    assert Label.of("short", 150).lines == ("short",)
    first, *_, last = Label.of("beginning " + "of a name " * 50 + "end", 150).lines
    assert first.startswith("beginning") and last.endswith("end")
