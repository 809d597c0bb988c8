"""Exports that name what belongs to another operator: the import brings none of it."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.canonical import canonical
from holdfast.domain.clock import now_ms
from holdfast.domain.ids import new_id
from holdfast.domain.transcript import Transcript
from holdfast.storage.database import blobs as blob_rows
from holdfast.storage.database.rows import change, insert_once
from holdfast.storage.database.tables import Call, ProjectFileRow, ToolCallRow
from holdfast.storage.database.tables_history import Pty
from holdfast.storage.log.events import chain
from holdfast.storage.moves import prompt_edits
from holdfast.storage.sessions import ptys
from holdfast.storage.transfer import blob_names
from holdfast.storage.transfer.archive import COLLECTIONS
from holdfast.storage.transfer.references import FIELDS, SESSIONS
from tests.support.servers.api_server import ApiServer, Caller
from tests.support.workflow_double import WorkflowDouble

SECRET = "wordsecret"
OWN = "wordown"
Document = dict[str, Any]
LISTS = ("messages?include_superseded=true", "runs", "events", "trace", "heads", "compactions")
MORE = ("checkpoints?include_archived=true", "ptys", "lineage", "export", "export?format=md")
BLOB_COLUMNS = [(name, one) for name, columns in blob_names.COLUMNS.items() for one in columns]
COLUMNS = [(name, one) for name, columns in FIELDS.items() for one in columns if name != "session"]


def lived(caller: Caller, folder: Path, word: str) -> str:
    """A session of the caller with something of every kind, the word in all of it."""
    project = caller.project(folder / word, f"version: 1\nproject: {word}\nprimary: {{}}\n")
    source = caller.session(project["id"], title=f"{word} source")["id"]
    workflow = WorkflowDouble(caller.api.store)
    workflow.run(source, word)
    session: str = caller.session(project["id"], resume_from=source, title=word)["id"]
    run = workflow.begin(session, word)
    blobs, store = workflow.opened.blobs, workflow.opened
    prompt = {"primary": store.write(lambda db: blob_rows.commit(db, blobs.put(word.encode())))}
    point = workflow.pause(session, word, prompts=prompt)
    edited = f"{word} edited"
    store.write(lambda db: prompt_edits.edit(db, blobs, point, "primary", edited))
    workflow.resume(session, point.id)
    tool = workflow.call(session, run, command=word)
    workflow.subagent(session, run)
    said = workflow.say(session, f"{word} result", "tool", run_id=run)
    texts = [blobs.put(f"{word} in blob {number}".encode(), "text/plain") for number in range(2)]
    timed = blobs.put(json.dumps({"at_ms": 1, "seq": 1, "data": word}).encode())
    texts.append(timed)
    request = blobs.put_json({"kind": word, "message_ids": [[said.id, said.id]]})
    pty = Pty(id=new_id(), session_id=session, run_id=run, command=word)
    shown = Transcript(reason="exited", exit_code=0, text=word, line_count=1)

    def fill(db: Any) -> None:
        kept = [blob_rows.commit(db, one) for one in texts]
        call = Call(id=new_id(), session_id=session, run_id=run, created_at=now_ms())
        call.request_ref, call.response_ref = blob_rows.commit(db, request), kept[0]
        call.message_id = said.id
        insert_once(db, Call, call.model_dump())
        closed = {"output_ref": kept[1], "message_id": said.id, "result_message_id": said.id}
        change(db, ToolCallRow, tool, **closed)
        ptys.opened(db, pty)
        ptys.closed(db, pty.id, shown, blob_id=kept[2])

    store.write(fill)
    workflow.finish(run, word)
    workflow.compact(session, [workflow.say(session, word).id])
    workflow.roll_back(session, point.id)
    workflow.run(session, word)
    return session


@pytest.fixture(scope="module")
def victim(api: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Document]:
    """What another operator's session is made of, as only that operator may export it."""
    caller = api.operator()
    session = lived(caller, tmp_path_factory.mktemp("victim"), SECRET)
    found: Document = caller.http.get(f"/sessions/{session}/export").json()
    assert SECRET in json.dumps(found)
    yield found
    caller.close()


@pytest.fixture(scope="module")
def mallory(api: ApiServer) -> Iterator[Caller]:
    found = api.operator()
    yield found
    found.close()


@pytest.fixture(scope="module")
def own(mallory: Caller, tmp_path_factory: pytest.TempPathFactory) -> Document:
    """A real export of one's own, of a session that is gone by now."""
    session = lived(mallory, tmp_path_factory.mktemp("own"), OWN)
    found: Document = mallory.http.get(f"/sessions/{session}/export").json()
    assert all(found["archive"][name] for name in COLLECTIONS), "a row of every kind"
    purge(mallory, session)
    source = found["archive"]["sources"][0]["session"]["id"]
    purge(mallory, source)
    return found


def purge(caller: Caller, session: str) -> None:
    answer = caller.http.post(f"/sessions/{session}/purge?confirm=true")
    assert answer.status_code in (200, 404), answer.text


def imported(caller: Caller, document: Document) -> str | None:
    """Import it; the session's id, or None when it was refused."""
    rechain(document)
    answer = caller.http.post("/sessions/import", content=json.dumps(document))
    assert answer.status_code in (201, 400, 409), answer.text
    assert SECRET not in answer.text
    return None if answer.status_code != 201 else str(answer.json()["session_id"])


def rechain(document: Document) -> None:
    """What a forger does first: give the events hashes that follow from each other again."""
    parts, previous = document["archive"], ""
    for event in parts["events"]:
        record = {key: value for key, value in event.items() if key != "hash"}
        previous = event["hash"] = chain(previous, record)
    parts["session"]["event_hash"] = previous


def everything_shown(caller: Caller, session: str) -> str:
    """All that the API answers about a session, and about a fork of it."""
    paths = [f"/sessions/{session}", *(f"/sessions/{session}/{kind}" for kind in (*LISTS, *MORE))]
    answers = [caller.http.get(path) for path in paths]
    for run in answers[2].json()["items"]:
        answers.append(caller.http.get(f"/sessions/{session}/runs/{run['id']}"))
        answers.append(caller.http.get(f"/sessions/{session}/runs/{run['id']}/calls"))
    for head in caller.http.get(f"/sessions/{session}/heads").json()["items"]:
        answers.append(caller.http.get(f"/sessions/{session}/heads/{head['id']}/state"))
    points = caller.http.get(f"/sessions/{session}/checkpoints?include_archived=true").json()
    for point in points["items"]:
        path = f"/sessions/{session}/checkpoints/{point['id']}"
        answers += [caller.http.get(path), caller.http.get(f"{path}/prompts/primary")]
    for pty in caller.http.get(f"/sessions/{session}/ptys").json()["items"]:
        answers.append(caller.http.get(f"/sessions/{session}/ptys/{pty['pty_id']}/transcript"))
    answers.append(caller.http.get(f"/search?q={SECRET}"))
    project = answers[0].json()["project_id"]
    forked = caller.http.post(f"/projects/{project}/sessions", json={"resume_from": session})
    if forked.status_code == 201:
        fork = forked.json()["id"]
        answers.append(caller.http.get(f"/sessions/{fork}/messages?include_superseded=true"))
        answers.append(caller.http.get(f"/sessions/{fork}/export"))
        purge(caller, fork)
    assert [one.status_code for one in answers if one.status_code >= 500] == []
    blobs = answers[10].json().get("archive", {}).get("blobs", {})
    raw = b"".join(base64.b64decode(one) for one in blobs.values())
    shown = "".join(one.text for one in answers).replace(f'"query":"{SECRET}"', "")
    return shown + raw.decode("utf-8", "replace")


def check(caller: Caller, document: Document, what: str) -> bool:
    """Import the forged document; nothing of the victim shows. Whether it was taken at all."""
    session = imported(caller, document)
    if session is None:
        return False
    try:
        assert SECRET not in everything_shown(caller, session), what
    finally:
        purge(caller, session)
        for source in document["archive"]["sources"]:
            purge(caller, source["session"]["id"])
    return True


def ids_of(document: Document, target: str) -> list[str]:
    parts = document["archive"]
    if target == SESSIONS:
        return [parts["session"]["id"], parts["sources"][0]["session"]["id"]]
    ids = [row["id"] for row in parts[target]]
    if target in ("messages", "heads"):
        ids += [row["id"] for row in parts["sources"][0][target]]
    return ids


def test_the_own_export_comes_back_whole_and_without_a_warning(
    mallory: Caller, own: Document
) -> None:
    answer = mallory.http.post("/sessions/import", content=json.dumps(own))
    assert answer.status_code == 201, answer.text
    assert "warnings" not in answer.json()
    session = answer.json()["session_id"]
    again = mallory.http.get(f"/sessions/{session}/export").json()
    for name in (*COLLECTIONS, "blobs"):
        wanted = own["archive"][name]
        found = again["archive"][name]
        if name in ("messages", "supersessions"):
            wanted, found = ([{**row, "number": 0} for row in rows] for rows in (wanted, found))
        assert found == wanted, name
    purge(mallory, session)
    purge(mallory, own["archive"]["sources"][0]["session"]["id"])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted({name for name, _ in COLUMNS}))
def test_no_column_of_an_import_reaches_a_row_of_another_operator(
    mallory: Caller, own: Document, victim: Document, name: str
) -> None:
    for column, target in FIELDS[name].items():
        for foreign in ids_of(victim, target)[-2:]:
            forged = copy.deepcopy(own)
            for row in forged["archive"][name]:
                row[column] = [foreign] if isinstance(row[column], list) else foreign
            assert foreign in json.dumps(forged["archive"][name])
            check(mallory, forged, f"{name}.{column}")


@pytest.mark.parametrize("column", sorted(FIELDS["session"]))
def test_no_field_of_the_session_reaches_a_row_of_another_operator(
    mallory: Caller, own: Document, victim: Document, column: str
) -> None:
    for foreign in ids_of(victim, FIELDS["session"][column])[-2:]:
        forged = copy.deepcopy(own)
        forged["archive"]["session"][column] = foreign
        assert check(mallory, forged, column), "a foreign name is left out, the rest is taken"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "column"), BLOB_COLUMNS)
def test_no_column_of_an_import_reaches_a_blob_that_it_does_not_carry(
    mallory: Caller, own: Document, victim: Document, name: str, column: str
) -> None:
    for foreign in victim["archive"]["blobs"]:
        forged = copy.deepcopy(own)
        for row in forged["archive"][name]:
            row[column] = foreign
        check(mallory, forged, f"{name}.{column}")


def test_no_text_is_followed_to_a_blob(mallory: Caller, own: Document, victim: Document) -> None:
    for foreign in victim["archive"]["blobs"]:
        forged = copy.deepcopy(own)
        parts = forged["archive"]
        for row in parts["messages"]:
            row["content"], row["meta"] = foreign, {"ref": foreign}
        for row in parts["tool_calls"]:
            row["output"] = {"ref": foreign, "output_ref": foreign}
        for event in parts["events"]:
            event["data"] = {**event["data"], "ref": foreign}
        parts["session"]["prompts"] = {"primary": foreign}
        for row in parts["checkpoints"]:
            row["prompts"], row["snapshot"] = {"primary": foreign}, {"ref": foreign}
        for row in parts["prompt_edits"]:
            row["old_hash"] = row["new_hash"] = foreign.removeprefix("sha256:")
        assert check(mallory, forged, foreign)


def test_the_words_of_a_message_are_not_followed_to_a_blob_without_any_import(
    mallory: Caller, victim: Document, tmp_path: Path
) -> None:
    session = mallory.session(mallory.project(tmp_path / "plain")["id"])["id"]
    workflow = WorkflowDouble(mallory.api.store)
    for foreign in victim["archive"]["blobs"]:
        workflow.say(session, foreign)
    assert mallory.http.get(f"/sessions/{session}/export").json()["archive"]["blobs"] == {}


@pytest.mark.parametrize("harm", ["delta", "prompts", "basis"])
def test_no_state_root_reaches_a_state_of_another_operator(
    mallory: Caller, own: Document, victim: Document, harm: str
) -> None:
    head = victim["archive"]["heads"][-1]
    for foreign in [head["state_ref"], *victim["archive"]["blobs"]]:
        forged = copy.deepcopy(own)
        parts = forged["archive"]
        changed = parts["heads"][-1]
        root = json.loads(base64.b64decode(parts["blobs"][changed["state_ref"]]))
        for part in root["collections"].values():
            if harm == "delta":
                part.update(delta=None, delta_ref=foreign)
            elif harm == "basis":
                part.update(basis=head["id"])
        if harm == "prompts":
            root["prompts"] = {"primary": foreign}
        data = canonical(root)
        digest = hashlib.sha256(data).hexdigest()
        parts["blobs"][f"sha256:{digest}"] = base64.b64encode(data).decode()
        for event in parts["events"]:
            event["row_id"] = digest if event["row_id"] == changed["id"] else event["row_id"]
        parts["session"]["current_head"] = digest
        changed.update(id=digest, state_ref=f"sha256:{digest}", fingerprint=digest)
        check(mallory, forged, f"{harm} {foreign}")


@pytest.mark.parametrize("kind", ["message", "run", "call", "tool_call", "compaction", "pty"])
def test_no_event_shows_a_row_of_another_operator(
    mallory: Caller, own: Document, victim: Document, kind: str
) -> None:
    foreign = ids_of(victim, f"{kind}s")[0]
    forged = copy.deepcopy(own)
    for event in forged["archive"]["events"]:
        event.update(row_kind=kind, row_id=foreign, run_id=ids_of(victim, "runs")[0])
        event["data"]["source_session_id"] = victim["archive"]["session"]["id"]
    assert check(mallory, forged, kind)


def test_no_source_in_an_import_stands_for_a_session_of_another_operator(
    mallory: Caller, own: Document, victim: Document
) -> None:
    forged = copy.deepcopy(own)
    session = victim["archive"]["session"]["id"]
    (source,) = forged["archive"]["sources"]
    source["session"]["id"] = session
    for name in COLLECTIONS:
        for row in source.get(name) or []:
            row[COLLECTIONS[name][1]] = session
    forged["archive"]["derivations"][0]["source_session"] = session
    assert not check(mallory, forged, "sources")


def test_a_project_file_of_another_operator_is_not_found_by_its_hash(
    mallory: Caller, own: Document, victim: Document
) -> None:
    forged = copy.deepcopy(own)
    parts = forged["archive"]
    parts["session"]["dsl_hash"] = victim["archive"]["session"]["dsl_hash"]
    known = mallory.api.store.read(lambda db: db.get(ProjectFileRow, parts["session"]["dsl_hash"]))
    assert known is not None
    parts["project_file"] = parts["project_file_hash"] = None
    assert imported(mallory, forged) is None


def test_what_was_left_out_is_said_in_the_answer(
    mallory: Caller, own: Document, victim: Document
) -> None:
    forged = copy.deepcopy(own)
    for row in forged["archive"]["derivations"]:
        row["source_session"] = victim["archive"]["session"]["id"]
    answer = mallory.http.post("/sessions/import", content=json.dumps(forged)).json()
    assert answer["warnings"] == [
        "derivations.source_session: left out 1 that named nothing of yours"
    ]
    purge(mallory, answer["session_id"])
