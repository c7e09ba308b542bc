from __future__ import annotations

from xml.etree import ElementTree

from hire.inference.picture import explanation_svg
from hire.sampling.picture import MOST_ROWS, context_svg


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


def test_reasons_are_drawn_as_paths_and_shared_facts() -> None:
    about = {"support": 1, "references": 2, "weight": 0.5}
    rules = [
        {"kinds": ["plays_for", "led_by"], "paths": [["a", "x & y", "b"]], **about},
        {"kinds": ["r", "s", "t⁻¹"], "paths": [["a", "u", "v", "b"]], **about},
        {"kinds": ["knows"], "paths": [["a", "b"]], **about},
    ]
    shared = [{"relation": "works_at", "entity": f"e{i}", **about} for i in range(30)]
    similar = {"head": "c", "tail": "d", "head_similarity": 0.5, "tail_similarity": 1.0}
    ends = {"relation": "coach", "head": "a", "tail": "b", "confidence": 0.42, "labels": {"a": "Ann", "u": "Ulm"}}
    root = ElementTree.fromstring(explanation_svg({**ends, "rules": rules, "shared": shared, "similar": similar}))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Ann — coach → b (42%)", "x & y", "Ulm", "v", "t⁻¹", "c", "d", "e0", "50% alike"} <= set(texts)
    assert "knows (1 of 2 references)" in texts and "e29" not in texts
    kinds = [element.get("class") for element in root.iter() if element.get("class")]
    assert kinds.count("shared") == 3 and kinds.count("shared-edge") == 5 and kinds.count("pole") == 2
    bare = explanation_svg({**ends, "rules": [], "shared": [], "similar": similar})
    assert ElementTree.fromstring(bare) is not None
