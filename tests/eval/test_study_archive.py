"""Studies as archives: the same study packs to the same bytes, tells nothing of the machine, and can be verified."""

import gzip
import json
import lzma
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seedbench.bundle import PACKED_LOG, pack
from seedbench.errors import SeedBenchError, UsageError
from seedbench.logs import lines, seal
from seedbench.runs import LOG, MANIFEST, SUMMARY
from seedbench.study import archive as archive_module
from seedbench.study.archive import opened_study, study_of, write_archive
from seedbench.study.evidence import verify_study
from seedbench.study.pack import pack_study
from seedbench.study.spec import Study
from seedbench.verify import Report
from tests.eval.helpers import Command, command_line, said
from tests.eval.hostile import archive, member, refused
from tests.eval.published import NAMES, WRITES, Record, edit, finished
from tests.eval.studies import STUDY, command
from tests.train.helpers import echo

Made = tuple[Study, Path]
EVALUATION = "runs/{}/evaluation/unseen"


@pytest.fixture(autouse=True, scope="module")
def _echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with echo(tmp_path_factory.mktemp("echo")):
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, _echo: None) -> Made:
    """A finished study, and beside its folder `small.tar.xz` and `packed`, what is published of it."""
    study, out = finished(tmp_path_factory.mktemp("made"))
    for target in ("small.tar.xz", "packed"):
        assert pack_study(study, out.parent / "s.toml", out, out.parent / target) == 4
    return study, out


@pytest.fixture
def held(made: Made, tmp_path: Path) -> Path:
    """The archive, unpacked into a folder that a test may change."""
    with tarfile.open(made[1].parent / "small.tar.xz") as tar:
        tar.extractall(tmp_path, filter="data")
    return tmp_path / "small"


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_line(monkeypatch, capsys)


# What is published


def test_what_an_archive_holds(made: Made, held: Path) -> None:
    parts = {"training.json", "metrics.jsonl"}
    runs = {f"runs/{name}/{part}" for name in NAMES for part in parts}
    runs |= {f"{EVALUATION.format(name)}/{part}" for name in NAMES for part in (MANIFEST, SUMMARY, LOG)}
    names = {path.relative_to(held).as_posix() for path in held.rglob("*") if path.is_file()}
    assert names == {
        "study.toml", "study.json", "usage.jsonl", f"runs/{WRITES}/traces/update-000002.jsonl.gz", *runs,
        *(f"starts/warm/{part}" for part in parts),
    }  # fmt: skip
    for name in NAMES:
        assert (held / EVALUATION.format(name) / LOG).read_bytes() == (
            made[1] / EVALUATION.format(name) / LOG
        ).read_bytes()
    packed = {path.relative_to(made[1].parent / "packed").as_posix() for path in (made[1].parent / "packed").rglob("*")}
    assert f"runs/{WRITES}/traces/update-000002.jsonl.gz" in packed
    assert f"{EVALUATION.format(WRITES)}/{PACKED_LOG}" in packed


def test_logs_come_last_and_nothing_of_whoever_packed(made: Made) -> None:
    with tarfile.open(made[1].parent / "small.tar.xz") as tar:
        members = tar.getmembers()
    logs = [member.name.endswith(LOG) for member in members]
    assert logs == sorted(logs)
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.isreg()) for m in members} == {(0, 0, 0, "", "", True)}


def test_the_same_study_makes_the_same_bytes_wherever_it_lies(made: Made, tmp_path: Path) -> None:
    moved = shutil.copytree(made[1], tmp_path / "my studies" / "small")
    log = moved / EVALUATION.format("gigpo-s0")
    pack(log, tmp_path / "bundle")  # which may stand in place of an evaluation
    shutil.rmtree(log)
    (tmp_path / "bundle").rename(log)
    # As a command with --only leaves it, or another study of these runs.
    edit(moved / "study.json", lambda record: record.update(runs=["grpo-s0"], study={}))
    pack_study(made[0], made[1].parent / "s.toml", moved, tmp_path / "again.tar.xz")
    assert (tmp_path / "again.tar.xz").read_bytes() == (made[1].parent / "small.tar.xz").read_bytes()


def plain(path: Path) -> bytes:
    content = path.read_bytes()
    return {".gz": gzip.decompress, ".xz": lzma.decompress}.get(path.suffix, bytes)(content)


def test_nothing_published_names_a_folder_of_the_machine(made: Made, held: Path) -> None:
    out = made[1]
    assert str(out).encode() in (out / "study.json").read_bytes() + (out / "runs/grpo-s0/training.json").read_bytes()
    for folder in (held, out.parent / "packed"):
        for path in (path for path in folder.rglob("*") if path.is_file()):
            assert not [word for word in (str(out.parent), "/home", "script") if word.encode() in plain(path)], path
        training = json.loads((folder / "runs/grpo-s0/training.json").read_text())
        assert training["settings"]["model"] == "starts/warm/final"
        assert training["sessions"][0]["command"][2:] == [
            "--model", "starts/warm/final", "--out", "runs/grpo-s0", '--set=data.panel="p.x"',
        ]  # fmt: skip
        cells = json.loads((folder / "study.json").read_text())["cells"]
        assert {cell["settings"]["model"] for cell in cells.values()} == {"tiny:xs", "starts/warm/final"}


def test_paths_in_the_file_of_the_study(made: Made, tmp_path: Path) -> None:
    text = STUDY.replace('model = "tiny:xs"', 'model = "/home/me/models/tiny:xs" # of /data/tiny, and/or mine')
    (tmp_path / "s.toml").write_text(text)
    pack_study(made[0], tmp_path / "s.toml", made[1], tmp_path / "packed")
    held = (tmp_path / "packed" / "study.toml").read_text()
    assert 'model = "tiny:xs" # of tiny, and/or mine' in held
    assert held == text.replace("/home/me/models/", "").replace("/data/", "")


def test_the_report_is_rebuilt_from_an_archive_to_the_byte(made: Made, tmp_path: Path) -> None:
    out, file = made[1], made[1].parent / "s.toml"
    for place, source in (("own", out), ("archive", out.parent / "small.tar.xz"), ("packed", out.parent / "packed")):
        command(file, tmp_path / place, report=True, source=source)
    own, *others = (
        {path.name: path.read_bytes() for path in (tmp_path / place / "report").iterdir()}
        for place in ("own", "archive", "packed")
    )
    assert "final-unseen.csv" in own
    assert others == [own, own]


def test_a_target_that_is_there_is_left_alone(made: Made, tmp_path: Path) -> None:
    (tmp_path / "x.tar.xz").write_text("mine")
    with pytest.raises(UsageError, match=r"x\.tar\.xz' is there already"):
        pack_study(made[0], made[1].parent / "s.toml", made[1], tmp_path / "x.tar.xz")
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar.xz"]


# What is verified


def found(folder: Path) -> list[str]:
    return [f"{_name(report, folder)}: {text}" for report in verify_study(folder) for text in report.first]


def _name(report: Report, folder: Path) -> str:
    return report.folder.relative_to(folder).as_posix()


def test_an_honest_study(made: Made, cli: Command) -> None:
    for source in (made[1], made[1].parent / "packed", made[1].parent / "small.tar.xz"):
        told = cli("verify", source)
        assert told.code == 0, told
        lines = [f"{source}/{EVALUATION.format(name)}: verified (8 episodes, 8 turns)" for name in NAMES]
        assert told.out.splitlines() == [*lines, f"{source}: verified (4 evaluations, 32 episodes, 32 turns)"]
    assert "give it without --panel" in said(cli("verify", made[1], "--panel", "echo/test"), 2)


def response(held: Path) -> None:
    """An answer that was not given, with the seal that fits it."""
    run = held / EVALUATION.format("grpo-s1")
    first, *rest = (json.loads(line) for line in lines(run / LOG))
    turn = first["turns"][0]
    turn["response"] = {"left": "right", "right": "left"}[turn["response"]]
    (run / LOG).write_text("".join(json.dumps(record) + "\n" for record in (first, *rest)))
    edit(run / MANIFEST, lambda manifest: manifest["sessions"][-1].update(log=seal(run / LOG)))


def swap(held: Path) -> None:
    one, two, aside = held / EVALUATION.format("grpo-s0"), held / EVALUATION.format("grpo-s1"), held / "aside"
    one.rename(aside)
    two.rename(one)
    aside.rename(two)


def manifest(change: Callable[[Record], object]) -> Callable[[Path], None]:
    return lambda held: edit(held / EVALUATION.format("grpo-s1") / MANIFEST, change)


def training(change: Callable[[Record], object]) -> Callable[[Path], None]:
    return lambda held: edit(held / "runs/grpo-s1/training.json", change)


def asked(old: str, new: str) -> Callable[[Path], None]:
    def change(held: Path) -> None:
        text = (held / "study.toml").read_text()
        assert old in text
        (held / "study.toml").write_text(text.replace(old, new))

    return change


def shorter(held: Path) -> None:
    journal = held / "runs/grpo-s1/metrics.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]))


def empty(held: Path) -> None:
    for path in (held / EVALUATION.format("grpo-s1")).iterdir():
        path.unlink()


AT = f"{EVALUATION.format('grpo-s1')}: "
TAMPERED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "edited response": (response, f"{AT}test-"),
    "swapped evaluations": (swap, f"{AT}{MANIFEST}: the policy's seed is 0; the study has 1 there."),
    "missing run": (lambda held: shutil.rmtree(held / "runs/grpo-s1"), "runs/grpo-s1: training.json is missing: the"),
    "missing start": (lambda held: shutil.rmtree(held / "starts/warm"), "starts/warm: training.json is missing: the"),
    "missing evaluation": (
        lambda held: shutil.rmtree(held / EVALUATION.format("grpo-s1")), f"{AT}the evaluation is missing.",
    ),
    "empty evaluation": (empty, f"{AT}the evaluation is missing."),
    "no evaluation": (
        lambda held: shutil.copy(held / "runs/grpo-s1/training.json", held / EVALUATION.format("grpo-s1")),
        f"{AT}'",
    ),
    "missing journal": (
        lambda held: (held / "runs/grpo-s1/metrics.jsonl").unlink(), "runs/grpo-s1: metrics.jsonl is missing: the run",
    ),
    "more than was asked": (
        lambda held: shutil.copytree(held / "runs/grpo-s1", held / "runs/grpo-s2"),
        ".: 'runs/grpo-s2' is not in the study's matrix.",
    ),
    "a seed more": (asked("[0, 1]", "[0, 1, 2]"), "runs/grpo-s2: training.json is missing"),
    "other tasks": (
        asked('"echo/test" }', '"echo/test" }\nlimit = 4'),
        f"{AT}{MANIFEST}: panel is echo/test@1 (",
    ),
    "other seed": (asked('"echo/test" }', '"echo/test" }\nseed = 5'), f"{AT}{MANIFEST}: seed is 0; the study has 5"),
    "other protocol": (asked("echo/choose", "echo/chat"), f"{AT}{MANIFEST}: protocol is echo/choose@1 ("),
    "other start": (
        training(lambda held: held["settings"].update(model="starts/cold/final")),
        "runs/grpo-s1: training.json: start is starts/cold/final; the study has starts/warm/final there.",
    ),
    "other model": (
        lambda held: edit(held / "starts/warm/training.json", lambda record: record["settings"].update(model="big")),
        "starts/warm: training.json: start is big; the study has tiny:xs there.",
    ),
    "other settings": (
        training(lambda held: held["settings"]["optimiser"].update(lr=0.5)),
        "runs/grpo-s1: training.json: optimiser.lr is 0.5; the study has 0.001 there.",
    ),
    "other method": (
        manifest(lambda held: held["policy"]["trained"].update(method="seed")),
        f"{AT}{MANIFEST}: the policy's method is seed; the study has grpo there.",
    ),
    "other share": (
        manifest(lambda held: held["policy"]["trained"]["data"].update(fraction=0.5)),
        f"{AT}{MANIFEST}: the policy's share of the data is 0.5; the study has 1.0 there.",
    ),
    "no training": (
        manifest(lambda held: held["policy"].pop("trained")), f"{AT}{MANIFEST} does not say which training the policy",
    ),
    "shorter journal": (
        shorter, f"{AT}{MANIFEST}: the policy's environment steps is 400.0; the study has 200.0 there.",
    ),
    "endless number": (
        lambda held: (held / "runs/grpo-s1/metrics.jsonl").write_text(
            f'{{"update": 2, "metrics": {{"seconds": 1{"0" * 400}}}}}\n'
        ),
        "runs/grpo-s1: ",
    ),
    "damaged journal": (
        lambda held: (held / "runs/grpo-s1/metrics.jsonl").write_text("{}\n"), "runs/grpo-s1: '",
    ),
    "damaged manifest": (
        lambda held: (held / EVALUATION.format("grpo-s1") / MANIFEST).write_text("{"), f"{AT}'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", TAMPERED)
def test_tampered_study(held: Path, what: str) -> None:
    assert found(held) == []
    change, sentence = TAMPERED[what]
    change(held)
    assert [text for text in found(held) if text.startswith(sentence)], found(held)


def test_two_panels_have_one_policy(held: Path) -> None:
    asked('{ unseen = "echo/test" }', '{ unseen = "echo/test", again = "echo/test" }')(held)
    for run in (held / "runs").iterdir():
        shutil.copytree(run / "evaluation" / "unseen", run / "evaluation" / "again")
    assert found(held) == []
    for name in (MANIFEST, SUMMARY):
        text = (place := held / "runs/grpo-s0/evaluation/again" / name).read_text()
        place.write_text(text.replace('"kind": "half"', '"kind": "whole"'))
    assert found(held) == [
        f"runs/grpo-s0/evaluation/again: {MANIFEST}: its policy is not that of 'unseen'; one checkpoint is evaluated on"
        " all panels."
    ]


def test_command_names_what_differs(cli: Command, held: Path) -> None:
    swap(held)
    told = cli("verify", held)
    assert told.code == 1
    assert told.out.splitlines()[-1] == f"{held}: differences in 2 places (4 evaluations, 32 episodes, 32 turns)"
    edit(held / "study.json", dict.clear)
    (held / "study.toml").unlink()
    assert "holds no study" in said(cli("verify", held), 1)


def test_an_archive_without_runs_has_none_of_them(cli: Command, held: Path) -> None:
    for name in ("runs", "starts"):
        shutil.rmtree(held / name)
    write_archive(held, target := held.with_name("bare.tar.xz"))
    told = cli("verify", target)
    assert told.code == 1
    assert told.out.count("training.json is missing") == 5
    assert told.out.splitlines()[-1] == f"{target}: differences in 9 places (4 evaluations, 0 episodes, 0 turns)"


def test_a_study_of_too_many_runs_is_not_read(held: Path) -> None:
    asked("[0, 1]", str(list(range(5001))))(held)
    with pytest.raises(SeedBenchError, match=r"asks for 10,003 runs; at most 10,000"):
        study_of(held)


# Archives from anybody


FIRST = member("s/study.toml")
TRACES = "s/runs/x/traces/update-000001.jsonl.gz"
HOSTILE: dict[str, tuple[list[tuple[Any, bytes]], str]] = {
    "parent": ([FIRST, member("s/../study.json")], "'s/../study.json': only the files that `seedbench study --pack`"),
    "absolute": ([member("/etc/study.toml")], "'/etc/study.toml': only the files"),
    "upwards": ([member("../study.toml")], "'../study.toml': only the files"),
    "two studies": ([FIRST, member("t/study.toml")], "'t/study.toml': only the files"),
    "run of no name": ([FIRST, member("s/runs/../training.json")], "'s/runs/../training.json': only the files"),
    "extra": ([FIRST, member("s/runs/x/final/model.safetensors")], "only the files"),
    "folder": ([FIRST, member("s/runs", b"", tarfile.DIRTYPE)], "'s/runs': only the files"),
    "link": (
        [FIRST, member("s/study.json", b"", tarfile.SYMTYPE, linkname="/etc/passwd")],
        "'s/study.json': it is no regular file",
    ),
    "hard link": ([FIRST, member("s/study.json", b"", tarfile.LNKTYPE, linkname="s/study.toml")], "no regular file"),
    "twice": ([FIRST, FIRST], "'s/study.toml': it is there twice"),
    "oversized": ([FIRST, member("s/study.json", b" " * (17 << 20))], "17,825,792 bytes, and may have 16,777,216"),
    "no study": ([member("s/study.json")], "is no archive of a study: it has no study.toml"),
    "empty": ([], "is no archive of a study: it has no study.toml"),
    "bomb": (
        [FIRST, member("s/study.json", pax_headers={"comment": "x" * (4 << 20)})],
        "more than the files of a study",
    ),
    "bomb of many": (
        [FIRST, *(member(f"s/runs/{n}/training.json", pax_headers={"comment": "x" * 900_000}) for n in "ab")],
        "more than the files of a study",
    ),
    "chain": (
        [FIRST, *[member("p", b"6 a=b\n", tarfile.XHDTYPE)] * 400, member("s/study.json")],
        "is no whole archive of a study (maximum recursion depth",
    ),
    "other path": ([FIRST, member("s/study.json", pax_headers={"path": "s/../../x"})], "'s/../../x': only the files"),
    "huge": ([FIRST, member("s/study.json", pax_headers={"size": "9" * 15})], "it has 999,999,999,999,999 bytes"),
    "this folder": ([member("./study.toml")], "'./study.toml': only the files"),
    "other case": (
        [FIRST, member("s/runs/A/training.json"), member("s/runs/a/training.json")],
        "'s/runs/a/training.json': it is there twice",
    ),
    "other digits": ([FIRST, member(TRACES.replace("1", "\u0661"))], "only the files"),
    "damaged traces": ([FIRST, member(TRACES, b"junk")], "is damaged: update-000001.jsonl.gz cannot be unpacked"),
    "endless traces": ([FIRST, member(TRACES, gzip.compress(bytes(3000)))], "unpacks to more than 0 MiB"),
    "many": ([FIRST, *(member(f"s/runs/r{n}/training.json") for n in range(5))], "more than 5 files"),
    "much": ([FIRST, member("s/study.json", bytes(9000))], "with it they have more than 8,192 bytes"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    members, sentence = HOSTILE[what]
    if what in ("endless traces", "many", "much"):
        monkeypatch.setattr(archive_module, "_MOST_TRACES", 2000)
        monkeypatch.setattr(archive_module, "_MOST_FILES", 5)
        monkeypatch.setattr(archive_module, "_MOST_BYTES", 8192)
    hostile = archive(tmp_path / "s.tar.xz", members)
    assert sentence in refused(hostile, opened_study, monkeypatch)


def test_traces_are_bounded_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = [member(TRACES.replace("1", number), gzip.compress(bytes(1900), mtime=0)) for number in "12"]
    hostile = archive(tmp_path / "s.tar.xz", [FIRST, *traces])
    monkeypatch.setattr(archive_module, "_MOST_BYTES", 3800)
    with opened_study(hostile):
        pass
    monkeypatch.setattr(archive_module, "_MOST_BYTES", 3799)
    with pytest.raises(SeedBenchError, match=r"its traces unpack to more than 3,799 bytes"), opened_study(hostile):
        pass


@pytest.mark.parametrize("left", [0, 1, 100, 0.5, -40, -1])
def test_archive_cut_short(made: Made, tmp_path: Path, left: float) -> None:
    content = (made[1].parent / "small.tar.xz").read_bytes()
    (tmp_path / "s.tar.xz").write_bytes(content[: int(left * len(content)) if left == 0.5 else int(left)])
    with pytest.raises(SeedBenchError, match="is no whole archive of a study"), opened_study(tmp_path / "s.tar.xz"):
        pass


def test_what_is_no_archive(made: Made, tmp_path: Path) -> None:
    content = (made[1].parent / "small.tar.xz").read_bytes()
    for wrong in (b"junk", content + b"more", content[:2000] + b"\0\0\0\0" + content[2004:]):
        (tmp_path / "s.tar.xz").write_bytes(wrong)
        with pytest.raises(SeedBenchError, match="is no whole archive of a study"), opened_study(tmp_path / "s.tar.xz"):
            pass
    with (
        pytest.raises(UsageError, match="is neither a folder nor an archive"),
        opened_study(tmp_path / "absent.tar.xz"),
    ):
        pass
