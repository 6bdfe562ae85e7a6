#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""baton-chat against a stub endpoint, from scripts and from a terminal."""
import os
import tempfile
import threading
import time

from harness import Terminal, main, run
from stub import Stub


def ask(stub, *args, text="hi", **more):
    return run("baton-chat", "--url", stub.url, "--ask", text, *args, **more)


def one_question():
    with Stub() as stub:
        done = ask(stub, "--system", "Be brief.", "--max-tokens", "7", "--temperature", "0", "--top-p", "0.5", "--seed", "3")
        assert (done.returncode, done.stdout.decode(), done.stderr) == (0, "Hello, wörld!\n", b""), done
        assert stub.asked == [{"model": "stub-model", "max_tokens": 7, "stream": True, "temperature": 0, "top_p": 0.5,
                               "seed": 3, "system": "Be brief.", "messages": [{"role": "user", "content": "hi"}]}], stub.asked
        assert "x-api-key" not in stub.fields[0]


def keys_are_sent():
    with Stub() as stub:
        assert ask(stub, env={"BATON_API_KEY": "sk-env"}).returncode == 0
        assert ask(stub, "--api-key", "sk-arg", env={"BATON_API_KEY": "sk-env"}).returncode == 0
        assert [f["x-api-key"] for f in stub.fields] == ["sk-env", "sk-arg"]
        assert ask(stub, "--api-key", "sk\r\nx: y").returncode == 1


def timings_come_from_the_serving():
    with Stub() as stub:
        done = ask(stub, "--timings")
        assert done.returncode == 0
        for part in ("TTFT 25 ms", "ITL 20.0 ms", "50 tokens/s", "computed 82", "reused 128", "transferred 210 over shm",
                     "prefill0 -> decode0"):
            assert part in done.stderr.decode(), (part, done.stderr)


def only_whole_answers_are_good():
    for fault, words in (("cut", "closed"), ("error", "fails on request"), ("busy", "overloaded_error"), ("garbage", "HTTP")):
        with Stub() as stub:
            stub.fault = fault
            done = ask(stub)
            assert done.returncode == 1 and words in done.stderr.decode(), (fault, done)
            assert done.stdout in (b"", b"Hello, \n"), done


def tools_work_in_a_folder():
    with Stub() as stub, tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "a.conf"), "w") as out:
            out.write("limit = 5\n")
        stub.calls = [[("grep", {"pattern": "limit"}), ("read_file", {"path": "../x"})],
                      [("edit_file", {"path": "a.conf", "old_text": "5", "new_text": "ünf"})], [("run_tests", {})]]
        done = ask(stub, f"--tools={folder}", "--test", "cat a.conf")
        assert (done.returncode, done.stdout.decode()) == (0, "Hello, wörld!\n" * 4), done
        assert [t["name"] for t in stub.asked[0]["tools"]][-1] == "run_tests"
        messages = stub.asked[3]["messages"]
        assert messages[1] == {"role": "assistant", "content": [
            {"type": "text", "text": "Hello, wörld!"},
            {"type": "tool_use", "id": "toolu_1_0", "name": "grep", "input": {"pattern": "limit"}},
            {"type": "tool_use", "id": "toolu_1_1", "name": "read_file", "input": {"path": "../x"}}]}, messages[1]
        assert messages[2] == {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1_0", "content": "a.conf:1: limit = 5"},
            {"type": "tool_result", "tool_use_id": "toolu_1_1", "content": "error: a path does not lead out of the folder",
             "is_error": True}]}, messages[2]
        assert messages[6]["content"][0]["content"] == "limit = ünf", messages[6]
        assert '> edit_file {"path"' in done.stderr.decode() and "< ok" in done.stderr.decode()
        # Earlier messages never change, so the server's prefix cache matches.
        assert all(later["messages"][:len(earlier["messages"])] == earlier["messages"]
                   for earlier, later in zip(stub.asked, stub.asked[1:]))


def rounds_of_tools_are_bounded():
    with Stub() as stub, tempfile.TemporaryDirectory() as folder:
        stub.calls = [[("list_files", {})]] * 9
        done = ask(stub, f"--tools={folder}", "--max-rounds", "3")
        assert done.returncode == 1 and b"after 3 rounds" in done.stderr and len(stub.asked) == 4, done
        assert "run_tests" not in [t["name"] for t in stub.asked[0]["tools"]]
        done = ask(stub, "--tools=/no/such/folder")
        assert done.returncode == 1 and b"/no/such/folder" in done.stderr, done


def kinds(asked):
    """Each message of a request in a letter: a question, an answer, calls, results."""
    return "".join(("a" if m["role"] == "assistant" else "q") if isinstance(m["content"], str)
                   else "c" if m["content"][-1]["type"] == "tool_use" else "r" for m in asked["messages"])


def a_failure_between_rounds_drops_the_question():
    def fail_third(n):
        stub.fault = "busy" if n == 3 else None

    with Stub() as stub, tempfile.TemporaryDirectory() as folder:
        stub.calls, stub.each = [[("list_files", {})]] * 2, fail_third
        done = run("baton-chat", "--url", stub.url, f"--tools={folder}", input=b"one\ntwo\nthree\n")
        assert done.returncode == 1 and b"overloaded_error" in done.stderr, done
        assert list(map(kinds, stub.asked)) == ["q", "qcr", "qcrcr", "q", "qaq"], stub.asked


def rounds_stay_without_a_last_text():
    with Stub(words=()) as stub, tempfile.TemporaryDirectory() as folder:
        stub.calls = [[("list_files", {})]] * 2
        run("baton-chat", "--url", stub.url, f"--tools={folder}", "--max-rounds", "1", input=b"one\ntwo\nthree\n")
        # After the limit the next question follows the results; an empty answer to it leaves nothing behind.
        assert list(map(kinds, stub.asked)) == ["q", "qcr", "qcrq", "qcrq"], stub.asked
        assert stub.asked[3]["messages"][-1]["content"] == "three"
        stub.asked, stub.calls = [], [[("list_files", {})]]
        run("baton-chat", "--url", stub.url, f"--tools={folder}", "--max-rounds", "0", input=b"one\ntwo\n")
        assert list(map(kinds, stub.asked)) == ["q", "q"], stub.asked


def interrupting_a_later_round():
    asked_twice = threading.Event()

    def wait_in_second(n):
        if n == 2:
            stub.gap_s = 60
            asked_twice.set()

    with Stub() as stub, tempfile.TemporaryDirectory() as folder:
        stub.calls, stub.each = [[("list_files", {})]], wait_in_second
        t = Terminal("baton-chat", "--url", stub.url, f"--tools={folder}", env={"HOME": folder, "XDG_STATE_HOME": ""})
        t.wait_for("> ")
        t.type("one\r")
        assert asked_twice.wait(30)
        t.type("\x03")
        t.wait_for("[stopped]")
        stub.gap_s = 0
        t.wait_for("> ")
        t.type("two\r")
        t.wait_for("Hello, wörld!")
        assert list(map(kinds, stub.asked)) == ["q", "qcr", "qcrq"], stub.asked
        t.wait_for("> ")
        t.type("\x04")
        assert t.status() == 0


def wrong_command_lines():
    for args in (["--max-tokens", "0"], ["--max-tokens", "x"], ["--temperature", "warm"], ["--seed", "-1"], ["stray"],
                 ["--tools", "--test", "x"], ["--test", "x"], ["--url", "https://x"], ["--url", "ftp://x"], ["--no-such"],
                 ["--url", "127.0.0.1:0"], ["--url", "127.0.0.1:65536"], ["--url", "http://:8080"]):
        done = run("baton-chat", *args, stdin=-3)
        assert done.returncode == 2 and done.stderr, (args, done)
    assert b"usage:" in run("baton-chat", "--help").stdout
    assert run("baton-chat", "--version").stdout.startswith(b"baton-chat ")
    done = run("baton-chat", "--url", "http://127.0.0.1:9", "--ask", "x")
    assert done.returncode == 1 and b"is a daemon running" in done.stderr, done


def lines_without_a_terminal():
    with Stub() as stub, tempfile.TemporaryDirectory() as home:
        saved = os.path.join(home, "talk.md")
        lines = f"hi\n\n/system Be kind.\nagain \\\nand more\n/save {saved}\n/nonsense\n/clear\nlast\n/quit\nnever\n"
        done = run("baton-chat", "--url", stub.url, input=lines.encode(), env={"HOME": home})
        assert done.returncode == 0 and done.stdout.decode() == "Hello, wörld!\n" * 3, done
        assert [m["content"] for m in stub.asked[1]["messages"]] == ["hi", "Hello, wörld!", "again \nand more"]
        assert stub.asked[1]["system"] == "Be kind." and len(stub.asked[2]["messages"]) == 1
        assert b"/nonsense" in done.stderr
        with open(saved) as f:
            assert "again \nand more\n\n## answer\n\nHello, wörld!\n" in f.read()
        assert os.listdir(home) == ["talk.md"]  # no history without a terminal
        stub.fault = "error"
        assert run("baton-chat", "--url", stub.url, input=b"hi\n").returncode == 1


def a_question_without_an_answer_is_forgotten():
    with Stub() as stub:
        stub.fault = "busy"
        run("baton-chat", "--url", stub.url, input=b"one\ntwo\n")
        assert [len(a["messages"]) for a in stub.asked] == [1, 1], stub.asked


def a_conversation_on_a_terminal():
    with Stub() as stub, tempfile.TemporaryDirectory() as home:
        t = Terminal("baton-chat", "--url", stub.url, env={"HOME": home, "XDG_STATE_HOME": ""})
        t.wait_for("Ctrl-D quits")
        t.wait_for("> ")
        t.type("grüße\r")
        t.wait_for("Hello, wörld!")
        t.wait_for("> ")
        t.type("half a line\x03")  # Ctrl-C drops it
        t.wait_for("> ")
        t.type("\x1b[A\x01x \r")  # the line before, with something put in front
        t.wait_for("Hello, wörld!")
        t.wait_for("> ")
        t.type("\x04")
        assert t.status() == 0
        assert [a["messages"][-1]["content"] for a in stub.asked] == ["grüße", "x grüße"], stub.asked
        path = os.path.join(home, ".local/state/baton/chat_history")
        assert os.stat(path).st_mode & 0o77 == 0, oct(os.stat(path).st_mode)
        t = Terminal("baton-chat", "--url", stub.url, env={"HOME": home, "XDG_STATE_HOME": ""})
        t.wait_for("> ")
        t.type("\x1b[A\x1b[A\r")
        t.wait_for("Hello, wörld!")
        t.type("/quit\r")
        assert t.status() == 0
        assert stub.asked[-1]["messages"][-1]["content"] == "grüße"


def leaving_while_an_answer_streams():
    with Stub(words=["one ", "two ", "three "] * 4) as stub, tempfile.TemporaryDirectory() as home:
        stub.gap_s = 0.05
        t = Terminal("baton-chat", "--url", stub.url, env={"HOME": home, "XDG_STATE_HOME": ""})
        t.wait_for("> ")
        t.type("count\r")
        t.wait_for("two ")
        t.type("\x04")  # another program has the terminal now; it still means the same
        t.wait_for("> ")
        assert t.status() == 0


def a_prompt_can_be_answered_at_once():
    with Stub() as stub, tempfile.TemporaryDirectory() as home:
        for _ in range(10):
            t = Terminal("baton-chat", "--url", stub.url, env={"HOME": home, "XDG_STATE_HOME": ""})
            t.wait_for("> ")
            t.type("\x04")
            assert t.status() == 0


def interrupting_an_answer():
    with Stub(words=["one ", "two ", "three "] + ["more "] * 100) as stub, tempfile.TemporaryDirectory() as home:
        stub.gap_s = 0.05
        t = Terminal("baton-chat", "--url", stub.url, env={"HOME": home, "XDG_STATE_HOME": ""})
        t.wait_for("> ")
        t.type("count\r")
        t.wait_for("two ")
        t.type("\x03")
        t.wait_for("[stopped]")
        t.wait_for("> ")
        stub.words, stub.gap_s = ["fine"], 0
        t.type("again\r")
        t.wait_for("fine")
        t.wait_for("> ")
        said = [m["content"] for m in stub.asked[1]["messages"]]
        assert said[0] == "count" and said[1].startswith("one two ") and said[2] == "again", said
        assert len(said[1]) < 300
        t.type("\x04")
        assert t.status() == 0


def answers_cannot_command_a_terminal():
    with Stub(words=["a\x1b[2Jb\x07c\x9bd\ttab\n"]) as stub:
        t = Terminal("baton-chat", "--url", stub.url, "--ask", "x")
        assert t.status() == 0
        assert b"a[2Jbcd\ttab" in t.text and b"\x1b" not in t.text, t.text
        assert b"\x1b[2J" in ask(stub).stdout  # a file gets the unchanged text


def interrupted_question_fails():
    with Stub(words=["x "] * 200) as stub:
        stub.gap_s = 0.05
        t = Terminal("baton-chat", "--url", stub.url, "--ask", "x")
        t.wait_for("x ")
        threading.Timer(0.1, lambda: t.type("\x03")).start()
        began = time.monotonic()
        assert t.status() == 1
        assert time.monotonic() - began < 8


main([one_question, keys_are_sent, timings_come_from_the_serving, only_whole_answers_are_good,
      tools_work_in_a_folder, rounds_of_tools_are_bounded, a_failure_between_rounds_drops_the_question,
      rounds_stay_without_a_last_text, interrupting_a_later_round, wrong_command_lines, lines_without_a_terminal, a_question_without_an_answer_is_forgotten, a_conversation_on_a_terminal,
      leaving_while_an_answer_streams, a_prompt_can_be_answered_at_once, interrupting_an_answer,
      answers_cannot_command_a_terminal, interrupted_question_fails])
