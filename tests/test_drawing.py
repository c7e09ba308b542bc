from __future__ import annotations

from xml.etree import ElementTree

from hire.drawing import MOST_ROWS, context_svg


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
    assert f"… {50 - MOST_ROWS + 1} more" in svg and svg.count('class="dot"') == MOST_ROWS
