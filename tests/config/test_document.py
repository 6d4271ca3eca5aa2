from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from protogate.config import builder, document, yamltext
from protogate.config.document import parse
from protogate.config.faults import AtKey, ConfigFaults, Located
from protogate.errors import ConfigError


def value(text: str, name: str = "a.yaml") -> Any:
    return parse(text.encode(), name).value


def faults(text: str | bytes, name: str = "a.yaml") -> list[str]:
    """What is wrong with a text, whether or not it can be read all the same."""
    try:
        document = parse(text if isinstance(text, bytes) else text.encode(), name)
    except ConfigFaults as error:
        found = error
    else:
        assert document.early
        found = document.faults(document.early)
    assert len(found.lines) == len(found.faults)
    return [line.removeprefix(f"{name}:") for line in found.lines]


PYTHON = pytest.param(yaml.SafeLoader, id="python")
LIBYAML = pytest.param(yaml.CSafeLoader, id="libyaml")


@pytest.fixture(params=[LIBYAML, PYTHON])
def _loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yamltext, "Loader", request.param)


@pytest.mark.usefixtures("_loader")
class TestYaml:
    def test_scalars_are_those_of_yaml_1_2(self) -> None:
        text = "a: no\nb: 012\nc: 0o14\nd: true\ne: null\nf: '5'\ng: \"true\"\nh: |\n  1\ni: 1.5\nj:\nk: ''\n"
        assert value(text) == {
            "a": "no",
            "b": 12,
            "c": 12,
            "d": True,
            "e": None,
            "f": "5",
            "g": "true",
            "h": "1\n",
            "i": 1.5,
            "j": None,
            "k": "",
        }

    def test_keys_that_yaml_1_1_takes_for_booleans_are_strings(self) -> None:
        assert value("on: 1\nno: 2\ny: 3\n") == {"on": 1, "no": 2, "y": 3}

    def test_flow_and_block_are_the_same(self) -> None:
        assert value("{a: [1, {b: c}], d: {}}") == value("a:\n- 1\n- b: c\nd: {}\n")

    def test_a_byte_order_mark_and_crlf_do_not_matter(self) -> None:
        assert parse(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n", "a.yaml").value == {"a": 1, "b": 2}

    def test_an_alias_is_the_value_of_its_anchor(self) -> None:
        assert value("a: &x {b: [1]}\nc: *x\nd: [*x, &y 5, *y]\n") == {
            "a": {"b": [1]},
            "c": {"b": [1]},
            "d": [{"b": [1]}, 5, 5],
        }

    def test_an_anchor_may_be_used_again(self) -> None:
        assert value("a: &x 1\nb: *x\nc: &x 2\nd: *x\n") == {"a": 1, "b": 1, "c": 2, "d": 2}

    @pytest.mark.parametrize("text", ["", " \n", "# nothing\n", "---\n", "---\n...\n", "null\n", "~"])
    def test_nothing_is_a_fault(self, text: str) -> None:
        assert faults(text) == ["1:1: the file is empty; it needs listeners at least"]

    def test_all_faults_of_a_text_come_at_once_in_its_order(self) -> None:
        text = "a: 1\n1: b\nc: !!str d\na: 2\ne: *f\n<<: {g: 1}\n? [h]\n: 1\ni: .inf\n&j k: 1\n"
        assert faults(text) == [
            '2:1: keys are strings: write "1" in quotes',
            "3:4: c: tags are not used here, remove !!str; quotes make text",
            "4:1: a: this key is given twice, first in line 1; keep one of them",
            "5:4: e: there is no anchor &f before this alias; text that begins with * needs quotes",
            "6:1: YAML 1.2 has no merge keys (<<); write the keys out, or use an alias as a value",
            "7:3: keys are strings, not lists or mappings",
            "9:4: i: .inf is no number here; text needs quotes",
            "10:1: an anchor has no place at a key",
        ]

    def test_an_alias_is_no_key(self) -> None:
        assert faults("a: &b c\n*b : d\n") == ["2:1: an alias has no place at a key"]

    def test_tags_of_containers_and_the_bare_tag_are_faults(self) -> None:
        assert [line.split(": ")[0] for line in faults("a: !!map {b: 1}\nc: ! d\ne: !x [1]\n")] == ["1:4", "2:4", "3:4"]

    def test_a_second_document_is_a_fault(self) -> None:
        assert faults("a: 1\n---\nb: 2\n") == ["2:1: a second document begins here; a file is one document"]

    def test_an_alias_within_its_own_anchor_is_a_fault(self) -> None:
        assert faults("a: &x [1, *x]\n") == ["1:11: a[1]: the alias *x stands within its own anchor &x"]

    def test_what_aliases_stand_for_is_bounded(self) -> None:
        rows = "".join(
            f"{name}: &{name} [{', '.join(['*' + before] * 10)}]\n"
            for before, name in zip("abcde", "bcdef", strict=True)
        )
        (line,) = faults(f"a: &a [{', '.join('x' * 10)}]\n{rows}")
        assert line.endswith("the aliases of this file stand for more than 100000 values")

    def test_as_much_without_aliases_is_none_of_its_business(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(builder, "ALIASED", 10)
        assert len(value(f"[{', '.join('x' * 50)}]")) == 50

    def test_depth_is_bounded(self) -> None:
        assert value("[" * 64 + "]" * 64) is not None
        assert faults("[" * 65 + "]" * 65) == ["1:65: more than 64 levels deep"]

    def test_columns_count_characters_and_lines_are_those_of_an_editor(self) -> None:
        assert faults("é: 'ü'\n'é': [ü, *x]\n") == [
            "2:1: é: this key is given twice, first in line 1; keep one of them",
            "2:10: é[1]: there is no anchor &x before this alias; text that begins with * needs quotes",
        ]

    @pytest.mark.parametrize(
        ("text", "place"),
        [
            ("a:\n\tb: 1\n", "2:1: a tab is used for indentation; use spaces"),
            ("a: @b\n", "1:4: text that begins with @ needs quotes"),
            ("a: `b\n", "1:4: text that begins with ` needs quotes"),
            ("a: b: c\n", '1:5: unexpected ": "; is the line above complete, or does this text need quotes?'),
            ("a: - b\n", '1:4: unexpected "- "; a list starts on a line of its own'),
            ('a: "b\n', "1:4: this quote is never closed"),
            ('a: "\\q"\n', "1:5: this escape is not known; write \\\\ for a backslash, or use single quotes"),
        ],
    )
    def test_syntax_errors_are_told_in_plain_words(self, text: str, place: str) -> None:
        (line,) = faults(text)
        # the two parsers differ by a character in where they see it
        assert line.split(": ", 1)[1] == place.split(": ", 1)[1]
        assert line.split(":")[0] == place.split(":", maxsplit=1)[0]

    @pytest.mark.parametrize(
        "text",
        [
            "a: [1\nb: 2\n",
            "a: {b: 1\nc: 2",
            "- a\nb: 1\n",
            "a: 'b' c\n",
            "a: *\n",
            "a: &\n",
            "%YAML 3.0\n--- a",
            "a: !x!y z\n",
            "a: |x\n",
            "a\nb: 1\n",
            "a: b\nc\n",
            '"\\ud800": 1',
            "!<x",
            "a:\n  - 1\n b: 2\n",
            "%\n---\na",
            "[1]]",
            "a: b\n c: d",
        ],
    )
    def test_any_other_syntax_error_is_one_fault_with_its_place(self, text: str) -> None:
        (line,) = faults(text)
        row, column, rest = line.split(":", 2)
        assert int(row) >= 1
        assert int(column) >= 1
        assert len(rest) > 10


class TestJson:
    def test_json_is_read_as_json(self) -> None:
        text = '{"a": [1, -2.5e3, true, false, null, "\\u00e9\\ud83d\\ude00\\/\\n"], "b": {}, "c": [], "d": ""}'
        assert value(text, "a.json") == json.loads(text)
        assert value(text, "a.conf") == json.loads(text)

    def test_a_text_that_only_looks_like_json_is_yaml(self) -> None:
        assert value('{"a": b, c: 012}') == {"a": "b", "c": 12}
        assert value('{"a": 1} # as YAML has it') == {"a": 1}

    def test_faults_of_json_come_at_once_whatever_the_file_is_called(self) -> None:
        text = '{"a": 1,\n "a": {"b": 2, "b": "\\ud800"},\n "c": 1e999}'
        for name in ("a.json", "a.conf"):
            assert faults(text, name) == [
                "2:2: a: this key is given twice, first in line 1; keep one of them",
                "2:16: a.b: this key is given twice, first in line 2; keep one of them",
                "2:21: a.b: half a character: \\ud800 to \\udfff come in pairs",
                "3:7: c: the number 1e999 is too large; text needs quotes",
            ]

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ("", "1:1: the file is empty; it needs listeners at least"),
            (" \n ", "1:1: the file is empty; it needs listeners at least"),
            ("{", '1:2: the text ends before the "}" that belongs to line 1'),
            ('{"a": [\n1', '2:2: the text ends before the "]" that belongs to line 1'),
            ('{"a"', '1:5: the text ends before the "}" that belongs to line 1'),
            ("[1,]", "1:4: expected a value, got ]; the comma before it is one too many"),
            ('{"a": 1,}', "1:9: expected a key in double quotes, got }; the comma before it is one too many"),
            ("[,]", '1:2: expected a value or "]", got ,'),
            ("[1 2]", '1:4: expected "," or "]", got 2'),
            ('{"a": 1 "b": 2}', '1:9: expected "," or "}", got "b"'),
            ('{"a" 1}', '1:6: expected ":", got 1'),
            ('{"a", 1}', '1:5: expected ":", got ,'),
            ("{1: 2}", '1:2: expected a key in double quotes or "}", got 1'),
            ("{a: 2}", '1:2: expected a key in double quotes or "}", got a'),
            ("{'a': 2}", "1:2: expected a key in double quotes or \"}\", got 'a'; strings need double quotes"),
            ("[True]", '1:2: expected a value or "]", got True; write true'),
            ("[1, None]", "1:5: expected a value, got None; write null"),
            ("[1, truex]", "1:5: expected a value, got truex"),
            ("[1, # x\n2]", "1:5: expected a value, got #; JSON has no comments"),
            ("[1, 012]", "1:5: expected a value, got 012"),
            ("[1, 1.]", "1:5: expected a value, got 1."),
            ("[1, +1]", "1:5: expected a value, got +1"),
            ("[1, 0x1]", "1:5: expected a value, got 0x1"),
            ("[1, -]", "1:5: expected a value, got -"),
            ("[1}", '1:3: expected "," or "]", got }'),
            ("{]", '1:2: expected a key in double quotes or "}", got ]'),
            ("]", "1:1: expected a value, got ]"),
            ("[1]]", "1:4: expected nothing more, got ]"),
            ('[1] "a"', '1:5: expected nothing more, got "a"'),
            ("{[", '1:2: expected a key in double quotes or "}", got ['),
            ("[1:2]", '1:3: expected "," or "]", got :'),
            ('{"a": 1, "b"}', '1:13: expected ":", got }'),
            ('["a', "1:2: this string is never closed, or holds a line break, a tab or an unknown escape"),
            ('["a\n"]', "1:2: this string is never closed, or holds a line break, a tab or an unknown escape"),
            ('["\\x"]', "1:2: this string is never closed, or holds a line break, a tab or an unknown escape"),
        ],
    )
    def test_syntax_errors(self, text: str, line: str) -> None:
        assert faults(text, "a.json") == [line]

    def test_depth_is_bounded(self) -> None:
        assert faults("[" * 65 + "]" * 65, "a.json") == ["1:65: more than 64 levels deep"]

    @given(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(10**15), 10**15)
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf", "Zl", "Zp", "Cn"])),
            lambda inner: (
                st.lists(inner, max_size=4) | st.dictionaries(st.text('abc é"\\', max_size=5), inner, max_size=4)
            ),
            max_leaves=20,
        ),
        st.sampled_from([None, 1, 3]),
        st.booleans(),
    )
    def test_whatever_json_says_comes_back(self, thing: Any, indent: int | None, ascii_only: bool) -> None:
        text = json.dumps({"a": thing}, indent=indent, ensure_ascii=ascii_only)
        assert value(text, "a.json") == {"a": thing}
        assert value(text, "a.conf") == {"a": thing}


class TestBytes:
    def test_other_encodings_are_a_fault_at_the_byte(self) -> None:
        assert faults(b"a: 1\nb: \xc3\xa9caf\xe9\n") == ["2:8: the byte 0xe9 is not UTF-8; save the file as UTF-8"]
        assert faults("a: 1".encode("utf-16")) == ["1:1: the byte 0xff is not UTF-8; save the file as UTF-8"]

    @pytest.mark.parametrize("character", ["\x00", "\x1b", "\x7f", "\x85", "\u200b", "\u2028", "\u202e", "\ufeff"])
    def test_characters_that_nobody_sees_are_a_fault(self, character: str) -> None:
        for name in ("a.yaml", "a.json"):
            (line,) = faults(f'{{"a":\n "b{character}"}}', name)
            assert line.startswith(f"2:4: the invisible character U+{ord(character):04X} ")

    def test_they_are_found_far_behind(self) -> None:
        text = "# " + "x" * 200_000 + "\na: \x07\n"
        assert faults(text) == ["2:4: the invisible character U+0007 has no place in a text file; remove it"]

    def test_a_file_that_is_too_large_is_a_fault(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(document, "LARGEST", 1024 * 1024)
        with pytest.raises(ConfigFaults) as caught:
            parse(b"#" * (1024 * 1024 + 1), "a.yaml")
        assert str(caught.value) == "a.yaml: the file has more than 1 MiB"

    @given(st.binary(max_size=200), st.sampled_from(["a.yaml", "a.json", "a"]))
    def test_any_bytes_are_a_document_or_faults(self, data: bytes, name: str) -> None:
        with suppress(ConfigFaults):
            assert parse(data, name).value is not None or name == "a.json"

    @given(
        st.lists(
            st.sampled_from(
                [
                    *"{}[],:-?&*!|>'\"%@` \n\t#aé0.",
                    "\n  ",
                    ": ",
                    "- ",
                    "&a ",
                    "*a",
                    "---\n",
                    "!!str ",
                    "<<: ",
                    "\\u",
                    "null",
                ]
            )
            | st.text(max_size=3),
            max_size=30,
        ).map("".join),
        st.sampled_from(["a.yaml", "a.json", "a"]),
    )
    def test_any_text_is_a_document_or_faults(self, text: str, name: str) -> None:
        try:
            data = text.encode()
        except UnicodeEncodeError:
            return
        with suppress(ConfigFaults):
            parsed = parse(data, name)
            assert parsed.position(()) >= (1, 1)


class TestPositions:
    YAML = "a:\n  - b: 1\n    c: {d: [x, 'y']}\ne: &z {f: 2}\ng: *z\n"
    JSON = '{"a":\n  [{"b": 1,\n    "c": {"d": ["x", "y"]}}],\n"e": 2}'

    @pytest.mark.parametrize(
        ("path", "position"),
        [
            ((), (1, 1)),
            (("a",), (2, 3)),
            (("a", 0), (2, 5)),
            (("a", 0, "b"), (2, 8)),
            (("a", 0, "c", "d", 1), (3, 16)),
            (("g",), (5, 4)),
            (("g", "f"), (4, 11)),
        ],
    )
    def test_of_values_in_yaml(self, path: tuple[str | int, ...], position: tuple[int, int]) -> None:
        assert parse(self.YAML.encode(), "a.yaml").position(path) == position

    @pytest.mark.parametrize(
        ("path", "position"),
        [((), (1, 1)), (("a",), (2, 3)), (("a", 0, "b"), (2, 10)), (("a", 0, "c", "d", 1), (3, 22)), (("e",), (4, 6))],
    )
    def test_of_values_in_json(self, path: tuple[str | int, ...], position: tuple[int, int]) -> None:
        assert parse(self.JSON.encode(), "a.json").position(path) == position

    def test_of_keys(self) -> None:
        parsed = parse(self.YAML.encode(), "a.yaml")
        assert parsed.position(("a", 0, "c"), key=True) == (3, 5)
        assert parsed.position(("a", 0), key=True) == (2, 5)
        assert parsed.position(("g",), key=True) == (5, 1)
        assert parsed.position(("e",), key=True) == (4, 1)

    def test_what_is_not_there_is_where_it_would_be(self) -> None:
        parsed = parse(self.YAML.encode(), "a.yaml")
        assert parsed.position(("a", 0, "nothing", 5)) == (2, 5)
        assert parsed.position(("a", 7)) == (2, 3)
        assert parsed.position(("nothing",), key=True) == (1, 1)

    def test_faults_are_sorted_by_their_place(self) -> None:
        parsed = parse(self.YAML.encode(), "dir/a.yaml")
        found = parsed.faults(
            [
                ConfigError("late", ("g",)),
                AtKey("key", ("a",)),
                Located("x", ("q",), (2, 1)),
                ConfigError("early", ("a", 0, "b")),
            ]
        )
        assert found.lines == [
            "dir/a.yaml:1:1: a: key",
            "dir/a.yaml:2:1: q: x",
            "dir/a.yaml:2:8: a[0].b: early",
            "dir/a.yaml:5:4: g: late",
        ]
