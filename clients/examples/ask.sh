#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One question with curl, the answer as it streams.
#
#   ask.sh [QUESTION]        BATON_URL (http://127.0.0.1:8080) and BATON_API_KEY from the environment
#
# The text pieces are JSON strings; sed cuts them out and printf undoes the escapes that matter on a terminal.
url=${BATON_URL:-http://127.0.0.1:8080}
question=${1:-What is a hand-off?}
quoted=$(printf %s "$question" | sed 's/\\/\\\\/g; s/"/\\"/g')

model=$(curl -fsS "$url/v1/models" -H "x-api-key: ${BATON_API_KEY:-none}" | sed -n 's/.*"first_id": *"\([^"]*\)".*/\1/p')
[ -n "$model" ] || exit 1
curl -fsSN "$url/v1/messages" -H "x-api-key: ${BATON_API_KEY:-none}" -H 'content-type: application/json' -d "{
    \"model\": \"$model\", \"max_tokens\": 256, \"temperature\": 0, \"stream\": true,
    \"messages\": [{\"role\": \"user\", \"content\": \"$quoted\"}]}" |
    sed -un 's/^data: .*"text_delta", *"text": *"\(.*\)"}}$/\1/p' |
    while IFS= read -r piece; do printf '%b' "$(printf %s "$piece" | sed 's/\\"/"/g; s/%/%%/g')"; done
echo
