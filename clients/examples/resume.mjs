// SPDX-License-Identifier: Apache-2.0
// A stream that outlives its router, without an SDK: when the connection is lost, the next router of the list goes on
// at the next byte, by the id of the last event.  A refusal of the rest, such as by the key's limits (429), says when to come back.
//
//   node resume.mjs [QUESTION]     BATON_URLS (http://127.0.0.1:8080, with commas between several), BATON_API_KEY,
//                                  BATON_FIELDS ({"max_tokens": 256}): more of the request
const urls = (process.env.BATON_URLS ?? "http://127.0.0.1:8080").split(",");
const headers = { "content-type": "application/json", "x-api-key": process.env.BATON_API_KEY ?? "none" };
const body = JSON.stringify({
  model: (await (await fetch(urls[0] + "/v1/models", { headers })).json()).data[0].id,
  max_tokens: 256,
  temperature: 0,
  stream: true,
  messages: [{ role: "user", content: process.argv[2] ?? "What is a hand-off?" }],
  ...JSON.parse(process.env.BATON_FIELDS ?? "{}"),
});
// Calls onEvent for each whole event; an event that a lost connection cut is dropped.  Returns when the body ends.
async function readEvents(response, onEvent) {
  const decoder = new TextDecoder();
  let text = "";
  for await (const piece of response.body) {
    text += decoder.decode(piece, { stream: true });
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const event = {};
      for (const line of text.slice(0, end).split("\n")) {
        const colon = line.indexOf(": ");
        if (colon > 0) event[line.slice(0, colon)] = line.slice(colon + 2);
      }
      text = text.slice(end + 2);
      onEvent(event);
    }
  }
}

let lastId, isWhole = false;
for (let attempt = 0, lost = 0; !isWhole && lost < 10; attempt++) {
  const before = lastId;
  let waitMs = 0;
  try {
    const response = await fetch(urls[attempt % urls.length] + "/v1/messages", {
      method: "POST",
      headers: lastId ? { ...headers, "last-event-id": lastId } : headers,
      body,
    });
    if (lastId && !response.ok) waitMs = 1000 * Number(response.headers.get("retry-after"));
    if (!response.ok && response.status < 500 && response.status !== 404 && !waitMs) throw new Error(await response.text());
    if (response.ok)
      await readEvents(response, (event) => {
        lastId = event.id ?? lastId;
        const data = JSON.parse(event.data ?? "{}");
        if (data.type === "content_block_delta") process.stdout.write(data.delta.text ?? "");
        isWhole ||= data.type === "message_stop";
      });
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // fetch's word for a lost connection
  }
  lost = lastId !== before ? 0 : lost + 1;
  if (!isWhole) await new Promise((done) => setTimeout(done, Math.max(250 * lost, waitMs)));
}
process.stdout.write("\n");
process.exit(isWhole ? 0 : 1);
