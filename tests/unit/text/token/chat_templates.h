/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates for tests, as model files have them. */
#ifndef TESTS_UNIT_TOKEN_CHAT_TEMPLATES_H
#define TESTS_UNIT_TOKEN_CHAT_TEMPLATES_H

/* Each message as ROLE:TEXT, with text before and after. */
#define EACH(before, after) before "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}" after

/* ChatML with tools, calls in the Hermes format, and a thinking switch. */
static const char hermes_template[] =
    "{%- if tools %}\n"
    "{{- '<|im_start|>system\\n' }}\n"
    "{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}\n"
    "{{- 'You have these tools:\\n<tools>' }}\n"
    "{%- for tool in tools %}{{- '\\n' + tool|tojson }}{%- endfor %}\n"
    "{{- '\\n</tools>\\nTo use one, write <tool_call> with a JSON object of name and "
    "arguments.<|im_end|>\\n' }}\n"
    "{%- elif messages[0].role == 'system' %}\n"
    "{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}\n"
    "{%- endif %}\n"
    "{%- for message in messages %}\n"
    "{%- if message.role == 'tool' %}\n"
    "{%- if loop.first or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}\n"
    "{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}\n"
    "{%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}\n"
    "{%- elif message.role != 'system' or not loop.first %}\n"
    "{{- '<|im_start|>' + message.role }}\n"
    "{%- if message.content or not message.tool_calls %}{{- '\\n' + message.content }}{%- endif %}\n"
    "{%- for call in message.tool_calls or [] %}\n"
    "{{- '\\n<tool_call>\\n{\"name\": \"' + call.function.name + '\", \"arguments\": ' }}\n"
    "{{- call.function.arguments|tojson + '}\\n</tool_call>' }}\n"
    "{%- endfor %}\n"
    "{{- '<|im_end|>\\n' }}\n"
    "{%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "{{- '<|im_start|>assistant\\n' }}\n"
    "{%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- "
    "endif %}\n"
    "{%- endif %}\n";

#endif
