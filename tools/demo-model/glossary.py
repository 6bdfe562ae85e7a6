# SPDX-License-Identifier: Apache-2.0
"""What the model knows: the terms of disaggregated serving, in short answers.

TERMS maps a term's names (the first is the one used in questions most often) to
several answers of one to three sentences.  PAIRS are comparisons, FACTS are
whole questions with whole answers.  Answers are plain ASCII.
"""

TERMS = {
    "TTFT|time to first token|the time to first token": [
        "TTFT is the time to first token: how long a client waits from sending a request until the first token of the answer arrives. It is mostly queueing plus prefill.",
        "TTFT, the time to first token, measures the wait before an answer starts. A long prompt or a full queue makes it grow."],
    "ITL|inter-token latency|the inter-token latency": [
        "ITL is the inter-token latency: the time between one token of an answer and the next. It depends mostly on decode.",
        "ITL, the inter-token latency, is the gap between two tokens of the same answer. A steady, small gap makes an answer feel fluent."],
    "prefill|the prefill phase": [
        "Prefill is the phase that reads the prompt. It computes keys and values for all prompt tokens at once, so it is limited by compute.",
        "Prefill reads the whole prompt and fills the KV cache. It works on many tokens at a time and keeps the arithmetic units busy."],
    "decode|the decode phase": [
        "Decode is the phase that writes the answer, one token at a time. Each step reads all weights and the KV cache, so it is limited by memory bandwidth.",
        "Decode produces the answer token by token. It moves a lot of memory for little arithmetic, which is why it likes large batches."],
    "the KV cache|KV cache|KV": [
        "The KV cache holds the keys and values of all tokens seen so far, for every layer. With it a step computes only the new token.",
        "The KV cache is the memory of a sequence: keys and values for each token and layer. Baton keeps it in blocks and hands it from prefill to decode."],
    "a hand-off|hand-off|the hand-off|handoff": [
        "A hand-off moves a sequence from a prefill worker to a decode worker. The KV cache is pushed block by block, layer by layer, and the answer goes on there.",
        "In a hand-off the prefill worker writes the KV cache into blocks granted by the decode worker, like passing the baton in a relay."],
    "the router|a router|router": [
        "The router takes requests from clients, renders the chat template, makes tokens, and picks the workers that will serve them. It streams the answer back.",
        "The router places every request on workers so that TTFT and ITL stay inside their objectives. It holds no model file."],
    "a worker|worker|workers": [
        "A worker is a process with a role: it runs the model for prefill, for decode, or for both.",
        "A worker holds the model and a pool of KV blocks. Prefill workers read prompts and decode workers write answers."],
    "a block|block|a KV block|KV block": [
        "A block holds the KV of a fixed number of tokens, 32 by default, for all layers. Blocks are the unit that is cached, shared and moved.",
        "A KV block is a piece of the KV cache for 32 tokens. It is free, filling, sealed or cached, and once sealed it never changes."],
    "a grant|grant|block grant": [
        "A grant is the permission of a receiver to write into named blocks. Without a grant nothing is sent.",
        "A grant tells the prefill worker which blocks of the decode worker it may write. It is asked for before the transfer begins."],
    "a lease|lease|block lease": [
        "A lease lends blocks to a transfer. A block under a lease does not return to the pool until the link is quiet.",
        "A lease keeps a block in place while a peer may still write to it. It ends when the sender has confirmed that it stopped."],
    "the prefix cache|prefix cache|prefix caching": [
        "The prefix cache keeps sealed blocks of earlier prompts, found by hash. A new request that begins the same way skips that part of prefill.",
        "The prefix cache lets requests with the same beginning share KV blocks. It saves compute and lowers TTFT."],
    "a chunk|chunk|prompt chunk": [
        "A chunk is a part of a prompt that is prefilled in one step, or a part of a transfer that has one bit in the bitmap.",
        "A chunk is a slice of a long prompt. Cutting a prompt into chunks lets short requests run in between."],
    "chunked prefill|chunking": [
        "Chunked prefill cuts a long prompt into pieces, one per step, so that it does not block the other requests for long.",
        "With chunked prefill a long prompt is read in several steps. The tokens come out the same as in one step."],
    "a batch|batch|batching": [
        "A batch is the set of sequences that one step runs together. A larger batch reads the weights once for more tokens.",
        "A batch is what one step of the engine works on. Batching shares the cost of reading the weights."],
    "a step|step|engine step": [
        "A step is one iteration of the engine: it runs the model once for everything in the batch.",
        "A step is one pass of the model over a batch. In decode each sequence gains one token per step."],
    "RDMA|remote direct memory access": [
        "RDMA is remote direct memory access: a network card writes into the memory of another machine without involving its processor.",
        "RDMA lets one machine write into the memory of another directly. Baton uses it to push KV blocks when the hardware has it."],
    "an SLO|SLO|service level objective": [
        "An SLO is a service level objective, for example a TTFT below 500 ms for 99 percent of requests.",
        "An SLO is a promise about service, such as a limit on TTFT or ITL. The router refuses work that would break it."],
    "continuous batching|in-flight batching": [
        "Continuous batching lets requests join and leave the batch at every step, so nobody waits for the longest answer.",
        "With continuous batching a new sequence enters as soon as there is room, and a finished one leaves at once."],
    "disaggregation|disaggregated inference|disaggregated serving": [
        "Disaggregation means that prefill and decode run on different workers, so that each can be tuned and scaled on its own.",
        "Disaggregated serving pulls prefill and decode apart. Long prompts then no longer stall the answers of other clients."],
    "tokens per second|throughput": [
        "Tokens per second is the throughput: how many tokens a system writes each second, over all requests.",
        "Throughput is counted in tokens per second. It grows with the batch size until memory or compute is full."],
    "a token|token|tokens": [
        "A token is a small piece of text, often a word or a part of one. A model reads and writes tokens.",
        "A token is the unit a language model works with. The tokeniser cuts text into tokens and joins them again."],
    "the tokeniser|tokeniser|tokenizer|a tokenizer": [
        "The tokeniser cuts text into tokens and turns each into a number. Mine is a byte-level BPE.",
        "A tokeniser maps text to token ids and back. Nothing is lost, because every byte has a token."],
    "attention|self-attention": [
        "Attention lets each token look at earlier tokens and mix in what it finds. Its keys and values are what the KV cache stores.",
        "Attention compares the query of one token with the keys of all earlier ones and takes a weighted sum of their values."],
    "a prompt|prompt|the prompt": [
        "A prompt is the text a model is given before it answers. Prefill reads it.",
        "The prompt is everything the model sees before it writes: system text, earlier turns and the question."],
    "sampling|the sampler|temperature": [
        "Sampling picks the next token from the probabilities the model gives. A low temperature makes it choose the likely ones.",
        "The sampler turns logits into a token. In Baton its random numbers depend only on the seed and the position."],
    "logits|a logit": [
        "Logits are the raw scores a model gives to each token of the vocabulary. The sampler turns them into a choice.",
        "Logits are numbers, one for each possible next token. The highest one is the most likely token."],
    "quantisation|quantization|Q8_0": [
        "Quantisation stores weights in fewer bits. Q8_0 keeps 32 weights as 8-bit numbers with one common scale.",
        "Quantisation makes a model smaller and faster to read. My own weights are stored as Q8_0."],
    "GGUF|a GGUF file": [
        "GGUF is a file format for models. It holds the weights, the vocabulary and the chat template in one file.",
        "GGUF is one file with metadata and tensors. I was loaded from such a file."],
    "back-pressure|backpressure": [
        "Back-pressure means that a full receiver makes the sender wait instead of dropping or piling up work.",
        "Back-pressure is how a busy part says: not now. In Baton a refused send is passed back to the caller."],
    "a transfer|transfer|KV transfer": [
        "A transfer is one movement of KV blocks from one worker to another. It is complete when the receiver has every chunk.",
        "A transfer moves blocks over RDMA, shared memory or TCP. Only the receiver can say that it is complete."],
    "the scheduler|scheduler": [
        "The scheduler decides which tokens of which sequences run in the next step.",
        "The scheduler plans each step: which prompts go on, which answers grow, and what has to wait."],
    "the picker|picker": [
        "The picker filters the workers, estimates TTFT and ITL for each choice, and takes the best one.",
        "The picker is the part of the router that chooses a prefill and a decode worker for a request."],
    "a sequence|sequence": [
        "A sequence is a timeline of tokens on a worker: the prompt and then the answer.",
        "A sequence is the list of tokens of one request on a worker, with a table of its KV blocks."],
    "a rail|rail": [
        "A rail is one port of a network card. More rails carry more KV at once.",
        "A rail is one network port used for transfers. A worker may have several."],
    "speculative decoding|speculation": [
        "Speculative decoding lets a small model guess several tokens, and the large model checks them in one step.",
        "In speculative decoding cheap guesses are verified in a batch, so that one step can yield several tokens."],
    "goodput": [
        "Goodput is the rate of requests that are served within their objectives. Late answers do not count.",
        "Goodput counts only the work that met its SLO, unlike plain throughput."],
    "the queue|queueing|a queue": [
        "A queue holds requests that wait for a worker. Time in the queue is part of TTFT.",
        "The queue is where requests wait until there is room in a step. When it grows, TTFT grows."],
    "tail latency|p99|the p99": [
        "The p99 is the latency that 99 percent of requests stay below. It shows what the slowest clients feel.",
        "Tail latency is how slow the slowest requests are, for example the p99."],
    "eviction|evicting a block": [
        "Eviction takes a cached block that nobody uses and makes it free again.",
        "When the pool is full, eviction frees cached blocks, the least useful first."],
    "a context window|context window|context length": [
        "The context window is how many tokens a model can see at once: prompt and answer together.",
        "The context length is the number of tokens a model can look back on. Each token in it costs KV memory."],
    "the seed|a seed": [
        "The seed fixes the random numbers of the sampler. The same seed and request give the same answer.",
        "A seed makes sampling repeatable. Baton keys its generator by seed and position."],
    "streaming|server-sent events|SSE": [
        "Streaming sends each token to the client as soon as it is made, as server-sent events.",
        "With streaming the answer appears piece by piece. The first piece comes after the TTFT."],
    "preemption": [
        "Preemption stops a sequence for a while to make room for another. Its blocks may be freed or kept.",
        "Preemption takes a sequence out of the batch when memory is short. It goes on later."],
    "a cluster|cluster|the cluster": [
        "A cluster is a router with its prefill and decode workers. All links between them are authenticated.",
        "The cluster is the set of machines that serve together: routers, prefill workers and decode workers."],
}

PAIRS = {
    ("prefill", "decode"): "Prefill reads the whole prompt at once and is bound by compute. Decode writes one token at a time and is bound by memory bandwidth.",
    ("TTFT", "ITL"): "TTFT is the wait for the first token, ITL is the gap between the tokens after it. Prefill drives the first, decode the second.",
    ("a grant", "a lease"): "A grant allows a peer to write named blocks. A lease keeps those blocks from being reused while the write may still be under way.",
    ("a router", "a worker"): "A router places requests and streams answers but holds no model. A worker holds the model and does the computing.",
    ("throughput", "goodput"): "Throughput counts all tokens. Goodput counts only requests that met their objectives.",
    ("throughput", "latency"): "Throughput is how much work is done per second. Latency is how long one request waits.",
    ("a block", "a chunk"): "A block is a fixed piece of the KV cache. A chunk is a part of a prompt or a part of a transfer.",
    ("a batch", "a step"): "A step is one run of the model. A batch is the set of sequences that the step runs.",
    ("RDMA", "TCP"): "RDMA writes straight into the memory of the peer. TCP goes through the kernel on both sides, but it works everywhere.",
    ("a prompt", "an answer"): "The prompt is what the model reads, the answer is what it writes.",
    ("the KV cache", "the prefix cache"): "The KV cache belongs to running sequences. The prefix cache keeps finished blocks so that later requests can reuse them.",
    ("static batching", "continuous batching"): "Static batching waits until the whole batch is done. Continuous batching lets requests join and leave at every step.",
    ("a token", "a word"): "A word is for people, a token is for the model. A long word may be several tokens.",
}

FACTS = [
    ("[What is Baton?|What is baton?|What does Baton do?|Tell me about Baton.|Explain Baton.|Describe Baton in a few words.]",
     ["Baton serves large language models with prefill and decode pulled apart. The KV cache is handed from one worker to the other like a baton in a relay.",
      "Baton is a small server for language models. A router, prefill workers and decode workers share the work, and clients see one endpoint."]),
    ("[Why is it called Baton?|Why the name Baton?|Where does the name Baton come from?]",
     ["Because the KV cache is handed from prefill to decode like the baton in a relay race."]),
    ("[Why separate prefill and decode?|Why split prefill from decode?|Why would I run prefill and decode apart?|Why disaggregate?|What is the point of disaggregation?]",
     ["Because they need different things: prefill needs compute, decode needs memory bandwidth. Apart, a long prompt no longer slows the answers of others.",
      "Together they disturb each other: a long prompt stalls every answer. Apart, TTFT and ITL can be tuned on their own."]),
    ("[How does a hand-off work?|How does the hand-off work?|Describe a hand-off.|What happens in a hand-off?]",
     ["The prefill worker asks for a grant, then pushes each layer of KV as it is computed. The decode worker checks every chunk and goes on with the answer."]),
    ("[Is the hand-off exact?|Does a hand-off change the answer?|Are the answers the same after a hand-off?]",
     ["Yes, it is exact to the bit. The same request gives the same tokens on one worker or two.",
      "The answer does not change. Baton gives the same tokens however a request was served."]),
    ("[What transports are there?|Which transports does Baton use?|How is KV moved?|How does the KV cache travel?]",
     ["KV moves by RDMA where there is RDMA, by shared memory on one host, and by TCP everywhere else."]),
    ("[What happens if a worker dies?|What if a worker crashes?|What does Baton do when a worker fails?]",
     ["The router sends the request to another worker and the stream goes on. Nothing stays pinned after a fault.",
      "The request moves to another worker. The client only sees a short pause."]),
    ("[How can I lower TTFT?|How do I reduce TTFT?|My TTFT is too high. What can I do?|How do I get a faster first token?]",
     ["Add prefill workers, keep prompts short, and let the prefix cache help: put what is common at the beginning of the prompt."]),
    ("[How can I lower ITL?|How do I reduce ITL?|My ITL is too high. What can I do?|Tokens come slowly. What can I do?]",
     ["Add decode workers or limit the batch size. Fewer sequences per step make each step shorter."]),
    ("[What decides TTFT?|What makes TTFT long?|Why is TTFT high?]",
     ["TTFT is the time in the queue plus the time of prefill. Long prompts and full queues make it long."]),
    ("[Why is decode slow?|Why is decode bound by memory?|What limits decode?]",
     ["Each decode step reads all weights and the KV cache to make one token per sequence. So memory bandwidth is the limit."]),
    ("[Why is prefill fast?|What limits prefill?|Why is prefill bound by compute?]",
     ["Prefill works on many tokens at once, so each weight it reads is used many times. Compute is the limit."]),
    ("[How big is a block?|How many tokens are in a block?|What is the size of a block?]",
     ["A block holds 32 tokens by default, for all layers."]),
    ("[What are the states of a block?|Which states can a block have?]",
     ["A block is free, filling, sealed or cached. A sealed block never changes."]),
    ("[What language is Baton written in?|Is Baton written in C?|Which language is Baton written in?]",
     ["Baton is written in C, with one small binary per role."]),
    ("[Which daemons are there?|What programs does Baton have?|What are the processes of Baton?]",
     ["There are three: baton-router, baton-prefill and baton-decode."]),
    ("[What is batonctl?|What does batonctl do?]", ["batonctl is the tool for operators: it shows the cluster and drains workers."]),
    ("[What is baton-bench?|What does baton-bench do?]", ["baton-bench is the load generator. It measures TTFT, ITL and tokens per second."]),
    ("[What is baton-chat?|What does baton-chat do?]", ["baton-chat is a chat client for the terminal."]),
    ("[What is baton-plan?|What does baton-plan do?]", ["baton-plan simulates a cluster and tells how many workers a load needs."]),
    ("[What API does Baton have?|Which API do clients use?|How do I talk to Baton?]",
     ["Clients use one Messages endpoint over HTTP: POST /v1/messages. curl is enough."]),
    ("[Is Baton secure?|How is Baton secured?|Are the links encrypted?]",
     ["Every port authenticates, links use TLS 1.3, and nothing listens beyond loopback unless told to."]),
    ("[When is a short prompt decoded in place?|What is conditional disaggregation?|Are short prompts handed off?]",
     ["A short or mostly cached prompt is computed on the decode worker itself, because moving it would cost more than it saves."]),
    ("[What is a language model?|What is an LLM?|How do you work?|How does a language model work?]",
     ["A language model reads tokens and predicts the next one, again and again. That is all I do too."]),
]

HAIKU = {
    "prefill": "The prompt is read now,\nall at once, layer by layer.\nDecode waits its turn.",
    "decode": "One token, one more,\nthe memory hums along.\nThe answer grows on.",
    "the KV cache": "Keys and values sleep\nin blocks of thirty-two each.\nNothing is read twice.",
    "latency": "A small pause, a breath,\nthen words arrive like spring rain.\nThe queue was not long.",
    "Baton": "One runner slows down,\nanother takes the baton.\nThe race does not stop.",
    "the router": "So many requests,\nso many doors left and right.\nIt picks the right one.",
    "the sea": "Grey water, white foam,\na gull hangs over the pier.\nThe boats have come home.",
    "the rain": "Rain upon the roof,\nsoft steps that never arrive.\nThe garden drinks deep.",
    "winter": "Snow lies on the field,\none fox has written its name\nfrom here to the wood.",
}
JOKES = [
    "Why did the token cross the network? To get to the other cache.",
    "Why was the decode worker so calm? It takes everything one step at a time.",
    "I would tell you a joke about latency, but you might have to wait for it.",
    "What is a router's favourite question? Where to?",
    "Why did the block stay at home? It was under a lease.",
    "A prompt walks into a bar. The barman says: you look familiar, I have you cached.",
    "Why do batches never feel lonely? They always go together.",
    "How many workers change a light bulb? Two: one reads the manual, one does it bit by bit.",
    "Why did the queue go to school? It wanted to be shorter.",
    "What did the prefill worker say to the decode worker? Catch!",
    "Why was the cache so popular? It remembered everyone.",
    "Why did the sampler lose at cards? It always picked at random.",
]
