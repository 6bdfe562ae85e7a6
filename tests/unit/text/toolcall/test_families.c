/* SPDX-License-Identifier: Apache-2.0 */
/* Each family's format of calls and thinking: every split of the text gives the same result. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "calls_sink.h"
#include "pieces.h"

#define X       CALLS_XML, false, false
#define G       CALLS_GLM, false, false
#define M       CALLS_MISTRAL, false, false
#define D       CALLS_DEEPSEEK, false, false
#define L       CALLS_LLAMA, false, false
#define H       CALLS_HARMONY, false, false
#define GR      CALLS_GRANITE, false, false
#define GR_T    CALLS_GRANITE, true, false
#define LF      CALLS_LFM2, false, false
#define CO      CALLS_COHERE, false, false
#define NE      CALLS_NEMOTRON, false, false
#define HL      CALLS_HUNYUAN_LIST, false, false
#define HY      CALLS_HUNYUAN, false, false
#define HY_T    CALLS_HUNYUAN, true, false
#define PH      CALLS_PHI_LIST, false, false
#define L4      CALLS_LLAMA4, false, false
#define OL      CALLS_OLMO, false, false
#define ER      CALLS_ERNIE, true, true
#define K       CALLS_KIMI, false, false
#define MM      CALLS_MINIMAX, false, false
#define SD      CALLS_SEED, false, false
#define GE      CALLS_GEMMA, false, false
#define FG      CALLS_FUNCTION_GEMMA, false, false
#define DM      CALLS_DSML, false, false
#define GT      CALLS_GLM_TIGHT, false, false
#define GC      CALLS_GIGACHAT, false, false
#define H3      CALLS_HY3, false, false
#define H3_OPEN CALLS_HY3_OPEN, false, false
#define AP      CALLS_APERTUS, false, false
#define AP_T    CALLS_APERTUS, true, false
#define T       CALLS_HERMES, true, false
#define T_BEGUN CALLS_HERMES, true, true
#define P       CALLS_PLAIN, true, false

#define FN(name, params) "<tool_call>\n<function=" name ">\n" params "</function>\n</tool_call>"
#define PAR(key, value)  "<parameter=" key ">\n" value "\n</parameter>\n"
#define GLM(name, args)  "<tool_call>" name "\n" args "</tool_call>"
#define ARG(key, value)  "<arg_key>" key "</arg_key>\n<arg_value>" value "</arg_value>\n"

#define KIMI(id, args)  "<|tool_call_begin|>" id "<|tool_call_argument_begin|>" args "<|tool_call_end|>"
#define KIMI_ALL(calls) "<|tool_calls_section_begin|>" calls "<|tool_calls_section_end|>"

#define MINI(calls)        "<minimax:tool_call>\n" calls "</minimax:tool_call>"
#define INVOKE(name, pars) "<invoke name=\"" name "\">\n" pars "</invoke>\n"
#define NAMED(key, value)  "<parameter name=\"" key "\">" value "</parameter>\n"

#define SEED(name, pars) "<seed:tool_call>\n<function=" name ">\n" pars "</function>\n</seed:tool_call>"
#define SPAR(key, value) "<parameter=" key ">" value "</parameter>\n"

#define GEM(call) "<|tool_call>call:" call "<tool_call|>"

#define PY(calls) "<|tool_call_start|>[" calls "]<|tool_call_end|>"

#define ACT(items) "<|START_ACTION|>[\n    " items "\n]<|END_ACTION|>"

#define HY3(name, args) "<tool_call>" name "<tool_sep>" args "</tool_call>"
#define HY3_ALL(calls)  "<tool_calls>\n" calls "\n</tool_calls>"

#define APER(items) "<|tools_prefix|>[" items "]<|tools_suffix|>"

#define NEMO(items) "<TOOLCALL>[" items "]</TOOLCALL>"

#define HLIST(items)      "<tool_calls>[" items "]</tool_calls>"
#define HCALL(name, args) "<tool_call>" name "\n```json\n" args "\n```</tool_call>"

#define PHI(calls) "<|tool_call|>" calls "<|/tool_call|>"

#define V3(name, args)  DS("call", "begin") "function" SEP name "\n```json\n" args "\n```" DS("call", "end")
#define V31(name, args) DS("call", "begin") name SEP args DS("call", "end")
#define DS_ALL(calls)   DS("calls", "begin") calls DS("calls", "end")

#define DSML_ALL(calls)   "<" DSML "function_calls>\n" calls "</" DSML "function_calls>"
#define DINV(name, pars)  "<" DSML "invoke name=\"" name "\">\n" pars "</" DSML "invoke>\n"
#define DPAR(key, how, v) "<" DSML "parameter name=\"" key "\" string=\"" how "\">" v "</" DSML "parameter>\n"

#define TO(name, args) "<|channel|>commentary to=functions." name " <|constrain|>json<|message|>" args
#define NEXT           "<|start|>assistant"

static const struct {
    enum calls_format format;
    bool thinks, begins_thinking;
    const char *text;
    bool is_cut;
    const char *out;
} answers[] = {
    /* Qwen 3 Coder */
    {X, "hello <tool", false, "hello <tool"},
    {X, FN("f", ""), false, "[f:{}]"},
    {X, "Look.\n" FN("f", PAR("s", "a \"b\"\nc")), false, "Look.\n[f:{\"s\": \"a \\\"b\\\"\\nc\"}]"},
    {X, FN("f", PAR("s", "12") PAR("n", "12") PAR("b", "True") PAR("l", "[1,\n2]") PAR("o", "{\"x\":null}")),
     false, "[f:{\"s\": \"12\", \"n\": 12, \"b\": true, \"l\": [1, 2], \"o\": {\"x\": null}}]"},
    {X, FN("f", PAR("u", "null") PAR("e", "on") PAR("a", "3") PAR("zz", "x y") PAR("n", "many")), false,
     "[f:{\"u\": null, \"e\": \"on\", \"a\": 3, \"zz\": \"x y\", \"n\": \"many\"}]"},
    {X, FN("f", PAR("u", "nul") PAR("r", "5")), false, "[f:{\"u\": \"nul\", \"r\": 5}]"},
    {X, FN("f", PAR("s", "\n  x\n")), false, "[f:{\"s\": \"\\n  x\\n\"}]"},
    {X, FN("f", "<parameter=s></parameter><parameter=s2>\n</parameter>"), false,
     "[f:{\"s\": \"\", \"s2\": \"\"}]"},
    {X, FN("f", PAR("s", "</tool_call> </function> </param")), false,
     "[f:{\"s\": \"</tool_call> </function> </param\"}]"},
    {X, FN("f", "") "\n" FN("g", PAR("s", "\xe2\x82\xac")) "\nDone.", false,
     "[f:{}][g:{\"s\": \"\xe2\x82\xac\"}]Done."},
    {X, "<function=f>\n" PAR("s", "x") "</function>\n</tool_call>", false, "[f:{\"s\": \"x\"}]"},
    {X, "<tool_call>\n<function=f>\n" PAR("s", "x") "</tool_call>", false, "[f:{\"s\": \"x\"}]"},
    {X, "<tool_call>\n<function=f>\n" PAR("s", "x"), false, "[f:{\"s\": \"x\"}]"},
    {X, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>", false, "[f:{\"a\": 1}]"},
    {X, "<tool_call>\n<function=f>\n" PAR("s", "x") "oops</tool_call>y", false,
     "[f:{\"s\": \"x\"?]<tool_call>\n<function=f>\n" PAR("s", "x") "oops</tool_call>y"},
    {X, "<tool_call>\n<function=f g>\n</tool_call>", false, "<tool_call>\n<function=f g>\n</tool_call>"},
    {X, "<tool_call>\n<function=f>\n<parameter=s>\nab", true, "[f:{\"s\": \"ab!]"},
    {X, "<tool_call>\n<function=f>\n" PAR("n", "12"), true, "[f:{\"n\": 12!]"},
    {X, "<tool_call>\n<function=f>\n<parameter=n>\n12", true, "[f:{\"n\": !]"},
    {X, "<tool_call>\n<function=f>\n<parameter=s>\nab", false,
     "[f:{\"s\": \"ab?]<tool_call>\n<function=f>\n<parameter=s>\nab"},
    {X, "<tool_call>\n<fun", true, ""},
    /* GLM */
    {G, GLM("f", ""), false, "[f:{}]"},
    {G, "<tool_call>f</tool_call>", false, "[f:{}]"},
    {G, "Hm.\n" GLM("f", ARG("s", "a\nb") ARG("n", "-3") ARG("e", "off")), false,
     "Hm.\n[f:{\"s\": \"a\\nb\", \"n\": -3, \"e\": \"off\"}]"},
    {G, GLM("f", ARG("l", "[\"x\"]")) GLM("g", ARG("a", "{\"k\": 1}")), false,
     "[f:{\"l\": [\"x\"]}][g:{\"a\": {\"k\": 1}}]"},
    {G, "<tool_call>not a call</tool_call>", false, "[not:{?]<tool_call>not a call</tool_call>"},
    {G, "<tool_call>{x}</tool_call>", false, "<tool_call>{x}</tool_call>"},
    {G, "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>ab", true, "[f:{\"s\": \"ab!]"},
    {G, "<tool_call>f\n<arg_key>s</ar", true, "[f:{!]"},
    /* Mistral */
    {M, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": [1, \"]\"]}}]", false,
     "[f:{\"a\": [1, \"]\"]}]"},
    {M,
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}, \"id\": \"abcdefghi\"}, {\"name\": \"g\", "
     "\"arguments\": {\"x\": 1}, \"id\": \"123456789\"}]",
     false, "[f:{}][g:{\"x\": 1}]"},
    {M, "[TOOL_CALLS][{\"id\": \"abcdefghi\", \"name\": \"f\", \"arguments\": {}}]\n", false, "[f:{}]"},
    {M, "[TOOL_CALLS]{\"name\": \"f\", \"arguments\": {}}", false, "[f:{}]"},
    {M, "Sure.[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{}", false, "Sure.[f:{\"a\": 1}][g:{}]"},
    {M, "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{\"a\": 1}", false, "[f:{\"a\": 1}]"},
    {M, "[TOOL_CALLS]f{\"a\": 1}", false, "[f:{\"a\": 1}]"},
    {M,
     "[TOOL_CALLS][{\"arguments\": {\"a\": 1}, \"name\": \"f\"}, {\"name\": \"g\", \"arguments\": \"{}\"}]",
     false, "[f:{\"a\": 1}][g:{}]"},
    {M, "[TOOL_CALLS][1, 2]", false, "[TOOL_CALLS][1, 2]"},
    {M, "[TOOL_CALLS]what?", false, "[TOOL_CALLS]what?"},
    {M, "a [TOOL b", false, "a [TOOL b"},
    {M, "[TOOL_CALLS]f[ARGS]{\"a\": nope}", false, "[f:{\"a\": n?][TOOL_CALLS]f[ARGS]{\"a\": nope}"},
    {M, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": \"x", true, "[f:{\"a\": \"x!]"},
    {M, "[TOOL_CALLS]f[AR", true, ""},
    /* DeepSeek */
    {D, DS_ALL(V3("f", "{\"a\": 1}")), false, "[f:{\"a\": 1}]"},
    {D, "Let me.\n\n" DS_ALL(V3("f", "{\"a\": \"`\"}") "\n" V3("g", "{}")) "x", false,
     "Let me.\n\n[f:{\"a\": \"`\"}][g:{}]x"},
    {D, DS_ALL(V31("f", "{\"a\": 1}") V31("g", "{\"b\": {}}")), false, "[f:{\"a\": 1}][g:{\"b\": {}}]"},
    {D, DS_ALL(V31("function", "{}")), false, DS("call", "begin") "function" SEP "{}" DS("call", "end")},
    {D, DS_ALL(DS("call", "begin") "so what" DS("call", "end")), false,
     DS("call", "begin") "so what" DS("call", "end")},
    {D, DS("calls", "begin") DS("call", "begin") "f" SEP "{\"a\": \"x", true, "[f:{\"a\": \"x!]"},
    {D, "a <" BAR "tool", false, "a <" BAR "tool"},
    /* Llama */
    {L, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", false, "[f:{\"a\": 1}]"},
    {L, "\n\n<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", false, "[f:{}]"},
    {L, "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", false, "[f:{}]"},
    {L, "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {\"x\": 2}}", false,
     "[f:{}][g:{\"x\": 2}]"},
    {L, "{\"parameters\": {\"a\":1}, \"name\": \"f\"}", false, "[f:{\"a\": 1}]"},
    {L, "{\"answer\": 42, \"name\": \"f\"}", false, "{\"answer\": 42, \"name\": \"f\"}"},
    {L, "{\"name\": \"Ann\", \"age\": 3}", false, "{\"name\": \"Ann\", \"age\": 3}"},
    {L, "See: {\"name\": \"f\", \"parameters\": {}}", false, "See: {\"name\": \"f\", \"parameters\": {}}"},
    {L, "{", false, "{"},
    {L, "{\"name\": \"f\", \"param", true, "{\"name\": \"f\", \"param"},
    {L, "{\"name\": \"f\", \"parameters\": {\"a\": \"x", true, "[f:{\"a\": \"x!]"},
    {L, "<|python_tag|>print(1)", false, "<|python_tag|>print(1)"},
    {L, "{\"name\": \"f\", \"parameters\": {}} and so on", false, "[f:{}]and so on"},
    /* gpt-oss */
    {H, "<|channel|>final<|message|>Hello.", false, "Hello."},
    {H, "<|channel|>analysis<|message|>Let me think.\n<|end|>" NEXT "<|channel|>final<|message|>Hi <b>!",
     false, "~Let me think.~Hi <b>!"},
    {H, "<|channel|>analysis<|message|>Hm.<|end|>" NEXT TO("f", "{\"a\": 1}"), false, "~Hm.~[f:{\"a\": 1}]"},
    {H, "<|channel|>commentary<|message|>I will look.<|end|>" NEXT TO("f", "{}") "<|call|>", false,
     "I will look.[f:{}]"},
    {H, " to=functions.f<|channel|>commentary json<|message|>{\"a\": 1}", false, " to=functions.f{\"a\": 1}"},
    {H, "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{\"a\": 1}", false,
     "[f:{\"a\": 1}]"},
    {H, "<|channel|>analysis<|message|>A<|start|>assistant<|channel|>analysis<|message|>B", false, "~A~~B~"},
    {H, "<|channel|>commentary to=python<|message|>print(1)", false,
     "<|channel|>commentary to=python<|message|>print(1)"},
    {H, "<|channel|>commentary to=functions.f<|message|>{\"a\": b", false,
     "[f:{\"a\": ?]<|channel|>commentary to=functions.f<|message|>{\"a\": b"},
    {H, "plain", false, "plain"},
    {H, "<|channel|>fin", false, "<|channel|>fin"},
    {H, "<|channel|>analysis<|message|>cut of", true, "~cut of~"},
    {H, TO("f", "{\"a\": \"x"), true, "[f:{\"a\": \"x!]"},
    /* Granite */
    {GR, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", false, "[f:{\"a\": 1}]"},
    {GR,
     "I look.\n<|tool_call|> [{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": "
     "{\"x\": \"]\"}}]\n",
     false, "I look.\n[f:{}][g:{\"x\": \"]\"}]"},
    {GR, "<|tool_call|>[{\"arguments\": {}, \"name\": \"f\"}]", false, "[f:{}]"},
    {GR, "<|tool_call|>[1]", false, "<|tool_call|>[1]"},
    {GR, "<|tool_call|>[]", false, "<|tool_call|>[]"},
    {GR, "a <|tool b", false, "a <|tool b"},
    {GR, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": \"x", true, "[f:{\"a\": \"x!]"},
    {GR, "<|tool_call|>[{\"name\"", true, ""},
    {GR_T, "<think>Hm.</think>\n\n<response>Hello.</response>", false, "~Hm.~Hello."},
    {GR_T, "<think>\nHm.\n</think>\n<response>\nHello.\n</response>\n", false, "~Hm.~Hello."},
    {GR_T, "<think>Hm.</think><|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]", false, "~Hm.~[f:{}]"},
    /* LFM2 */
    {LF, PY("f(a=1, b=\"x\")"), false, "[f:{\"a\": 1, \"b\": \"x\"}]"},
    {LF, "So.\n" PY("f(), g(x=[1, {'k': None}, ], y=True)") "Done.", false,
     "So.\n[f:{}][g:{\"x\": [1, {\"k\": null}], \"y\": true}]Done."},
    {LF, PY("f( s = 'it\\'s \"so\"\\n\\x41\\d', n=-1.5e3 ,)"), false,
     "[f:{\"s\": \"it's \\\"so\\\"\\n\\u0041\\\\d\", \"n\": -1.5e3 }]"},
    {LF, PY("f(s=\")]<|tool_call_end|>\")"), false, "[f:{\"s\": \")]<|tool_call_end|>\"}]"},
    {LF, PY("{\"name\": \"f\", \"arguments\": {\"a\": 1}}"), false, "[f:{\"a\": 1}]"},
    {LF, PY("f(1)"), false, "[f:{?]" PY("f(1)") ""},
    {LF, PY("f(a=1 2)"), false, "[f:{\"a\": 1 ?]" PY("f(a=1 2)") ""},
    {LF, PY("f(a=(1, 2))"), false, "[f:{\"a\": ?]" PY("f(a=(1, 2))") ""},
    {LF, PY("f(a={1})"), false, "[f:{\"a\": {?]" PY("f(a={1})") ""},
    {LF, PY("f(a=g)"), false, "[f:{\"a\": ?]" PY("f(a=g)") ""},
    {LF, PY("f(a=})"), false, "[f:{\"a\": ?]" PY("f(a=})") ""},
    {LF, PY("f(a=1), "), false, "[f:{\"a\": 1}]"},
    {LF, PY(""), false, "" PY("") ""},
    {LF, "a <|tool_call_s", false, "a <|tool_call_s"},
    {LF, "<|tool_call_start|>[f(a=\"x", true, "[f:{\"a\": \"x!]"},
    {LF, "<|tool_call_start|>[f(a=12", true, "[f:{\"a\": !]"},
    {LF, "<|tool_call_start|>[f", true, ""},
    {LF, "[f(a=1, b=\"x\"), f(x=None)]", false, "[f:{\"a\": 1, \"b\": \"x\"}][f:{\"x\": null}]"},
    {LF, "\n[f(a=1)]\nDone.", false, "[f:{\"a\": 1}]Done."},
    {LF, "[f(a=1)]" PY("g()"), false, "[f:{\"a\": 1}][g:{}]"},
    {LF, "[1, 2]", false, "[1, 2]"},
    {LF, "[f](x) is a link", false, "[f](x) is a link"},
    {LF, "[nothing(a=1)]", false, "[nothing(a=1)]"},
    {LF, "See [f(a=1)]", false, "See [f(a=1)]"},
    {LF, "[f(a=1", true, "[f:{\"a\": !]"},
    /* Cohere */
    {CO, ACT(ACTION("0", "f") "{\"a\": 1}}"), false, "[f:{\"a\": 1}]"},
    {CO, ACT(ACTION("3", "f") "{}},\n    " ACTION("4", "g") "{\"x\": \"]\"}}") "\n", false,
     "[f:{}][g:{\"x\": \"]\"}]"},
    {CO, "<|START_RESPONSE|>Hello.<|END_RESPONSE|>", false, "Hello."},
    {CO, "<|START_TEXT|>So.<|END_TEXT|>" ACT(ACTION("0", "f") "{}}") "x", false, "So.[f:{}]x"},
    {CO, "<|START_ACTION|>{\"tool_name\": \"f\", \"parameters\": {}}<|END_ACTION|>", false, "[f:{}]"},
    {CO, ACT("{\"parameters\": {\"a\": 1}, \"tool_name\": \"f\"}"), false, "[f:{\"a\": 1}]"},
    {CO, ACT("1"), false, "" ACT("1") ""},
    {CO, "a <|START_", false, "a <|START_"},
    {CO, "<|START_ACTION|>[\n    {\"tool_call_id\"", true, ""},
    {CO, "<|START_ACTION|>[" ACTION("0", "f") "{\"a\": \"x", true, "[f:{\"a\": \"x!]"},
    /* Nemotron */
    {NE, NEMO("{\"name\": \"f\", \"arguments\": {\"a\": 1}}") "\n", false, "[f:{\"a\": 1}]"},
    {NE,
     "Two.\n\n" NEMO("{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {\"x\": "
                     "\"</TOOLCALL>\"}}") "x",
     false, "Two.\n\n[f:{}][g:{\"x\": \"</TOOLCALL>\"}]x"},
    {NE, NEMO("{\"arguments\": \"{}\", \"name\": \"f\"}"), false, "[f:{}]"},
    {NE, NEMO(""), false, "" NEMO("") ""},
    {NE, "a <TOOL", false, "a <TOOL"},
    {NE, "<TOOLCALL>[{\"name\": \"f\"", true, ""},
    {NE, "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"a\": \"x", true, "[f:{\"a\": \"x!]"},
    /* Hunyuan */
    {HL, HLIST("{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}"), false,
     "[f:{\"a\": 1}][g:{}]"},
    {HL, "<answer>\n" HLIST("{\"name\": \"f\", \"arguments\": {}}") "\n</answer>", false, "[f:{}]"},
    {HL, HLIST(""), false, "" HLIST("") ""},
    {HL, "<tool_calls>[{\"name\": \"f\", \"arguments\": {\"a\": \"x", true, "[f:{\"a\": \"x!]"},
    {HY, "<tool_calls>" HCALL("f", "{\"a\": 1}") "\n" HCALL("g", "{}") "</tool_calls>", false,
     "[f:{\"a\": 1}][g:{}]"},
    {HY, "So.<tool_calls><tool_call>f{\"a\": \"`\"}</tool_call>\n</tool_calls>x", false,
     "So.[f:{\"a\": \"`\"}]x"},
    {HY, "<tool_calls><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call></tool_calls>", false,
     "[f:{}]"},
    {HY, "<tool_call>not a call</tool_call>", false, "<tool_call>not a call</tool_call>"},
    {HY, "<tool_calls><tool_call>f\n```js", true, ""},
    {HY, "<tool_call>f\n```json\n{\"a\": \"x", true, "[f:{\"a\": \"x!]"},
    {HY_T, "<think>\nHm.\n</think>\n<answer>\nHello <b>.\n</answer>", false, "~Hm.~Hello <b>."},
    {HY_T, "<think>\n\n</think>\n<answer>\nA</answer> B", false, "AB"},
    {HY, "  <answer>Hello\n\n</answer>\n", false, "Hello\n"},
    {HY, "<answer>a<answer>b</answer>c</answer>", false, "a<answer>bc</answer>"},
    {HY, "Say <answer>\n and </answer>.", false, "Say <answer>\n and </answer>."},
    {HY, "<answ", false, "<answ"},
    /* Phi */
    {PH, PHI("[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]"), false,
     "[f:{\"a\": 1}][g:{}]"},
    {PH, "Hm." PHI("{\"name\": \"f\", \"arguments\": {}}") PHI("{\"name\": \"g\", \"arguments\": {}}") "x",
     false, "Hm.[f:{}][g:{}]x"},
    {PH, PHI("[1]") "", false, PHI("[1]") ""},
    {PH, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}", false, "[f:{}]"},
    {PH, "<|tool_call|>[{\"name\": \"f\"", true, ""},
    {PH, "<|tool_call|>{\"name\": \"f\", \"arguments\": {\"a\": \"x", true, "[f:{\"a\": \"x!]"},
    /* Llama 4 */
    {L4, "[f(a=1, b='x'), f()]", false, "[f:{\"a\": 1, \"b\": \"x\"}][f:{}]"},
    {L4, "<|python_start|>[f(a=[1]), g()]<|python_end|>", false, "[f:{\"a\": [1]}][g:{}]"},
    {L4, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}{\"name\": \"g\", \"parameters\": {}}", false,
     "[f:{\"a\": 1}][g:{}]"},
    {L4, "<|python_start|>{\"name\": \"f\", \"parameters\": {}}<|python_end|>", false, "[f:{}]"},
    {L4,
     "<|python_start|>[{\"name\": \"f\", \"parameters\": {}}, {\"name\": \"g\", \"parameters\": "
     "{}}]<|python_end|>",
     false, "[f:{}][g:{}]"},
    {L4, "\n[f(s=\"]\")] and so on", false, "[f:{\"s\": \"]\"}]and so on"},
    {L4, "[{\"name\": \"f\", \"parameters\": {}}]", false, "[{\"name\": \"f\", \"parameters\": {}}]"},
    {L4, "[g(x)](url) is a link", false, "[g(x)](url) is a link"},
    {L4, "[1, 2]", false, "[1, 2]"},
    {L4, "[f(1)]", false, "[f:{?][f(1)]"},
    {L4, "See: [f(a=1)]", false, "See: [f(a=1)]"},
    {L4, "<|python_start|>print(1)<|python_end|>", false, "<|python_start|>print(1)<|python_end|>"},
    {L4, "[f(a=\"x", true, "[f:{\"a\": \"x!]"},
    {L4, "[f", false, "[f"},
    {L4, "[", false, "["},
    /* OLMo */
    {OL, "<function_calls>f(a=1, b=\"x\")</function_calls>", false, "[f:{\"a\": 1, \"b\": \"x\"}]"},
    {OL, "So.\n<function_calls>\nf(s='a\\nb')\ng(x=null, y=True)\n</function_calls>Done.", false,
     "So.\n[f:{\"s\": \"a\\nb\"}][g:{\"x\": null, \"y\": true}]Done."},
    {OL, "<function_calls>f()\nDone.", false, "[f:{}]Done."},
    {OL, "<function_calls>{\"name\": \"f\", \"arguments\": {}}</function_calls>", false, "[f:{}]"},
    {OL, "<function_calls>f(1)</function_calls>", false, "[f:{?]<function_calls>f(1)</function_calls>"},
    {OL, "<function_calls></function_calls>", false, "<function_calls></function_calls>"},
    {OL, "a <function_", false, "a <function_"},
    {OL, "<function_calls>f(a=1)\nf(a=\"x", true, "[f:{\"a\": 1}][f:{\"a\": \"x!]"},
    {OL, "<function_calls>f", true, ""},
    /* ERNIE, and a list in Hermes' marks */
    {ER, "Hm.\n</think>\n\n\n<response>\nHello.\n</response>\n", false, "~Hm.~Hello."},
    {ER, "Hm.\n</think>\n\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n", false,
     "~Hm.~[f:{}]"},
    {T,
     "<tool_call>\n[\n  {\"name\": \"f\", \"arguments\": {\"a\": 1}},\n  {\"name\": \"g\", \"arguments\": "
     "{}}\n]\n</tool_call>x",
     false, "[f:{\"a\": 1}][g:{}]x"},
    {T, "<tool_call>[{\"name\": \"f\", \"arguments\": {\"a\": \"x", true, "[f:{\"a\": \"x!]"},
    /* Kimi */
    {K, KIMI_ALL(KIMI("functions.get_weather:0", "{\"city\": \"Oslo\"}")), false,
     "[get_weather:{\"city\": \"Oslo\"}]"},
    {K,
     "Two." KIMI_ALL(KIMI("functions.f:3", "{\"a\": \"<|tool_call_end|>\"}") KIMI("functions.g:4", "{}")) "x",
     false, "Two.[f:{\"a\": \"<|tool_call_end|>\"}][g:{}]x"},
    {K, KIMI_ALL(KIMI(" f ", " {}") "\n" KIMI("functions.g", "{}")), false, "[f:{}][g:{}]"},
    {K, KIMI_ALL(KIMI("functions.:0", "{}")), false, KIMI("functions.:0", "{}")},
    {K, KIMI_ALL(KIMI("functions.f:0", "[1]")), false, KIMI("functions.f:0", "[1]")},
    {K, "a <|tool_call", false, "a <|tool_call"},
    {K, "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0", true, ""},
    {K, "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": \"x", true, "[f:{\"a\": \"x!]"},
    /* MiniMax */
    {MM, MINI(INVOKE("f", "")), false, "[f:{}]"},
    {MM, "Hm.\n" MINI(INVOKE("f", NAMED("s", "a \"b\"\n</invoke>") NAMED("n", "-3"))) "\nx", false,
     "Hm.\n[f:{\"s\": \"a \\\"b\\\"\\n</invoke>\", \"n\": -3}]x"},
    {MM,
     MINI(INVOKE("f", NAMED("l", "[1]") NAMED("s", "\nx\n")) INVOKE("g", NAMED("a", "true")) INVOKE("h", "")),
     false, "[f:{\"l\": [1], \"s\": \"x\"}][g:{\"a\": true}][h:{}]"},
    {MM, "<minimax:tool_call>" INVOKE("f", "") "<minimax:tool_call>" INVOKE("g", ""), false, "[f:{}][g:{}]"},
    {MM, MINI("<invoke name=\"f\">\n" NAMED("s", "x")) "y", false, "[f:{\"s\": \"x\"}]y"},
    {MM, MINI(INVOKE("f", "oops")) "y", false, "[f:{?]" MINI(INVOKE("f", "oops")) "y"},
    {MM, MINI(INVOKE("f", "") INVOKE("g", "oops")) "y", false,
     "[f:{}][g:{?]" INVOKE("g", "oops") "</minimax:tool_call>y"},
    {MM, MINI(INVOKE("f g", "")), false, MINI(INVOKE("f g", ""))},
    {MM, MINI("what?"), false, MINI("what?")},
    {MM, INVOKE("f", ""), false, INVOKE("f", "")},
    {MM, "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">ab", true, "[f:{\"s\": \"ab!]"},
    {MM, "<minimax:tool_call>\n" INVOKE("f", "") "<invoke name=\"g", true, "[f:{}]"},
    {MM, "a <minimax:tool", false, "a <minimax:tool"},
    /* Seed-OSS */
    {SD, SEED("f", ""), false, "[f:{}]"},
    {SD, "Hm.\n" SEED("f", SPAR("s", "a\n\"b\" </seed:tool_call>") SPAR("n", "12") SPAR("b", "True")), false,
     "Hm.\n[f:{\"s\": \"a\\n\\\"b\\\" </seed:tool_call>\", \"n\": 12, \"b\": true}]"},
    {SD, SEED("f", "") "\n" SEED("g", SPAR("a", "[1]")) "\nDone.", false, "[f:{}][g:{\"a\": [1]}]Done."},
    {SD, "<seed:tool_call>\n<function=f>\n" SPAR("s", "x") "</seed:tool_call>", false, "[f:{\"s\": \"x\"}]"},
    {SD, "<function=f>\n" SPAR("s", "x") "</function>\n</seed:tool_call>", false, "[f:{\"s\": \"x\"}]"},
    {SD, SEED("f", SPAR("l", "['a', True, {'k': None}]") SPAR("o", "{'a': \"it's\"}") SPAR("n", "['")), false,
     "[f:{\"l\": [\"a\", true, {\"k\": null}], \"o\": {\"a\": \"it's\"}, \"n\": \"['\"}]"},
    {SD,
     SEED("f", SPAR("l", "[1], a=2") SPAR("o", "{}, ") SPAR("l", "[1])") SPAR("l", "") SPAR("a", "['a']")),
     false, "[f:{\"l\": \"[1], a=2\", \"o\": \"{}, \", \"l\": \"[1])\", \"l\": \"\", \"a\": \"['a']\"}]"},
    {SD, SEED("f", "oops"), false, "[f:{?]" SEED("f", "oops")},
    {SD, "<seed:tool_call>no</seed:tool_call>", false, "<seed:tool_call>no</seed:tool_call>"},
    {SD, "<seed:tool_call>\n<function=f>\n<parameter=s>ab", true, "[f:{\"s\": \"ab!]"},
    {SD, "<seed:tool_call>\n<fun", true, ""},
    {SD, "<tool_call>", false, "<tool_call>"},
    /* Gemma 4 */
    {GE, GEM("f{}"), false, "[f:{}]"},
    {GE, "Hm.\n" GEM("f{s:" Q "a \"b\"\n{c}, d:" Q ",n:-3,b:True,my key:null}") "\nx", false,
     "Hm.\n[f:{\"s\": \"a \\\"b\\\"\\n{c}, d:\", \"n\": -3, \"b\": true, \"my key\": null}]x"},
    {GE, GEM("f{o:{k:[1, {x:" Q Q "}],l:[]} , a:None}") GEM("g{}"), false,
     "[f:{\"o\": {\"k\": [1, {\"x\": \"\"}], \"l\": []}, \"a\": null}][g:{}]"},
    {GE, GEM("f{" Q "k" Q ":\"x\\n\\\"\",\"j\" : [" Q "y" Q "],}"), false,
     "[f:{\"k\": \"x\\n\\\"\", \"j\": [\"y\"]}]"},
    {GE, GEM("f{s:" Q "<tool_call|>" Q "}"), false, "[f:{\"s\": \"<tool_call|>\"}]"},
    {GE, GEM("f{s:Oslo}"), false, "[f:{\"s\": ?]" GEM("f{s:Oslo}")},
    {GE, GEM("f{n:1 2}"), false, "[f:{\"n\": 1 ?]" GEM("f{n:1 2}")},
    {GE, GEM("f{n:1,,m:2}"), false, "[f:{\"n\": 1?]" GEM("f{n:1,,m:2}")},
    {GE, GEM("f{,}"), false, "[f:{}]"},
    {GE, GEM("f{n:<b>}"), false, "[f:{\"n\": ?]" GEM("f{n:<b>}")},
    {GE, GEM("f g{}"), false, GEM("f g{}")},
    {GE, "<|tool_call>what?<tool_call|>", false, "<|tool_call>what?<tool_call|>"},
    {GE, "<|tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}<tool_call|>", false, "[f:{\"a\": 1}]"},
    {GE, "<|tool_call>call:f{s:" Q "a<|\"", true, "[f:{\"s\": \"a!]"},
    {GE, "<|tool_call>call:f{n:12", true, "[f:{\"n\": !]"},
    {GE, "<|tool_call>call:f", true, ""},
    {GE, "a <|tool_c", false, "a <|tool_c"},
    {FG, "<start_function_call>call:f{s:<escape>a<b<escape>,n:2}<end_function_call>", false,
     "[f:{\"s\": \"a<b\", \"n\": 2}]"},
    /* DeepSeek V3.2 */
    {DM, DSML_ALL(DINV("f", "")), false, "[f:{}]"},
    {DM, "Hm.\n\n" DSML_ALL(DINV("f", DPAR("s", "true", "\n a \"b\"\n") DPAR("n", "false", "-3"))) "x", false,
     "Hm.\n\n[f:{\"s\": \"\\n a \\\"b\\\"\\n\", \"n\": -3}]x"},
    {DM,
     DSML_ALL(DINV("f", DPAR("zz", "true", "5") DPAR("n", "true", "5") DPAR("s", "false", "5")
                            DPAR("a", "false", "\"x\"")) "\n" DINV("g", DPAR("l", "false", "[1]")
                                                                            DPAR("k", "false", "no"))),
     false, "[f:{\"zz\": \"5\", \"n\": \"5\", \"s\": \"5\", \"a\": \"x\"}][g:{\"l\": [1], \"k\": \"no\"}]"},
    {DM, DSML_ALL(DINV("f", DPAR("s", "maybe", "5"))), false,
     "[f:{?]" DSML_ALL(DINV("f", DPAR("s", "maybe", "5")))},
    {DM, DSML_ALL("what?"), false, DSML_ALL("what?")},
    {DM,
     "<" DSML "function_calls>\n<" DSML "invoke name=\"f\">\n<" DSML
     "parameter name=\"s\" string=\"true\">a</" BAR "DS",
     true, "[f:{\"s\": \"a!]"},
    {DM, "<" DSML "function_calls>\n<" DSML "invoke name=\"f\">\n<" DSML "parameter name=\"s\" string=\"t",
     true, "[f:{!]"},
    {DM, "a <" BAR "DSML", false, "a <" BAR "DSML"},
    /* GLM 4.7, GigaChat 3.1 */
    {GT,
     "<tool_call>f<arg_key>s</arg_key><arg_value>\na\n</arg_value><arg_key>n</arg_key><arg_value>3</"
     "arg_value></tool_call>"
     "<tool_call>g</tool_call>",
     false, "[f:{\"s\": \"\\na\\n\", \"n\": 3}][g:{}]"},
    {GT, "<tool_call>f<arg_key>s</arg_key><arg_value>a</arg", true, "[f:{\"s\": \"a!]"},
    {GC, "Hm. <|function_call|>{\"name\": \"f\", \"arguments\": {\"a\": \"}\"}}", false,
     "Hm. [f:{\"a\": \"}\"}]"},
    {GC, "<|function_call|>{\"arguments\": {}, \"name\": \"f\"}", false, "[f:{}]"},
    {GC, "<|function_call|>what", false, "<|function_call|>what"},
    {GC, "<|function_call|>{\"name\": \"f\", \"arguments\": {\"a\": \"x", true, "[f:{\"a\": \"x!]"},
    /* Hunyuan 3 */
    {H3, HY3_ALL(HY3("f", "\n" ARG("s", "a\"b") ARG("n", "3"))), false, "[f:{\"s\": \"a\\\"b\", \"n\": 3}]"},
    {H3, "So.\n" HY3_ALL(HY3("f", "\n") "\n" HY3("g", "\n" ARG("x", "</tool_calls>"))) "x", false,
     "So.\n[f:{}][g:{\"x\": \"</tool_calls>\"}]x"},
    {H3, "<tool_calls><tool_call>f<tool_sep></tool_call></tool_calls>", false, "[f:{}]"},
    {H3, HY3_ALL(HY3("f g", "")), false, HY3_ALL(HY3("f g", ""))},
    {H3, HY3("f", "\n" ARG("n", "1")) " x", false, "[f:{\"n\": 1}]x"},
    {H3, "<tool_calls>\n<tool_call>f<tool_s", true, ""},
    {H3, "<tool_calls>\n<tool_call>f<tool_sep>\n<arg_key>s</arg_key>\n<arg_value>a</arg", true,
     "[f:{\"s\": \"a!]"},
    {H3_OPEN,
     "So.<tool_calls:opensource>\n<tool_call:opensource>f<tool_sep:opensource>\n"
     "<arg_key:opensource>s</arg_key:opensource>\n<arg_value:opensource></arg_value></arg_value:opensource>\n"
     "</tool_call:opensource>\n<tool_call:opensource>g<tool_sep:opensource></tool_call:opensource>\n"
     "</tool_calls:opensource>x",
     false, "So.[f:{\"s\": \"</arg_value>\"}][g:{}]x"},
    {H3_OPEN, HY3_ALL(HY3("f", "")), false, HY3_ALL(HY3("f", ""))},
    /* Apertus */
    {AP, APER("{\"f\": {\"a\": 1}}"), false, "[f:{\"a\": 1}]"},
    {AP, "Two. " APER("{\"f\": {\"x\": \"}]\"}}, { \"g\" : {}}") "x", false,
     "Two. [f:{\"x\": \"}]\"}][g:{}]x"},
    {AP, "<|tools_prefix|>[{\"arguments\": {}}]", true, "[arguments:{}]"},
    {AP, "<|tools_prefix|>{\"f\": {}}<|tools_suffix|>", false, "[f:{}]"},
    {AP, APER("{\"name\": \"f\", \"arguments\": {\"a\": 1}}"), false, "[f:{\"a\": 1}]"},
    {AP, APER("{\"f g\": {}}"), false, APER("{\"f g\": {}}")},
    {AP, APER("{\"f\": 1}"), false, APER("{\"f\": 1}")},
    {AP, APER(""), false, APER("")},
    {AP, "<|tools_prefix|>[{\"f\"", true, ""},
    {AP, "<|tools_prefix|>[{\"f\": {\"a\": \"x", true, "[f:{\"a\": \"x!]"},
    {AP, "a <|tools_", false, "a <|tools_"},
    {AP_T, "<think>Hm</think>Yes. " APER("{\"f\": {}}"), false, "~Hm~Yes. [f:{}]"},
    {AP_T, "<think>Hm " APER("{\"f\": {}}"), false, "~Hm~[f:{}]"},
    {AP_T, "<think>a <|tools_pre", true, "~a <|tools_pre~"},
    /* thinking in the text */
    {P, "<think>\nHm, yes.\n</think>\n\nHello.", false, "~Hm, yes.~Hello."},
    {P, "Well <think>a</think> b", false, "Well ~a~b"},
    {P, "<think>\n\n</think>\n\nHello.", false, "Hello."},
    {P, "<think>no end </thi", true, "~no end </thi~"},
    {P, "  indented", false, "  indented"},
    {T,
     "<think>a</think>\n<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"<think>\"}}</tool_call>\n"
     "<think>b</think>\n<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>",
     false, "~a~[f:{\"a\": \"<think>\"}]~b~[g:{}]"},
    {T_BEGUN, "\nso\n\nit is </think>\n\nYes.", false, "~so\n\nit is~Yes."},
    {T_BEGUN, "", false, ""},
    {T_BEGUN, "<tool_call> is what I need</think>ok", false, "~<tool_call> is what I need~ok"},
};

static struct calls_opts opts_of(size_t i, struct calls_tool *tool)
{
    *tool = (struct calls_tool){.name = bytes_str("f"), .schema = bytes_str(calls_sink_schema)};
    /* Granite 3.3 thinks, and then marks its answers as ERNIE does. */
    bool has_marks = answers[i].format == CALLS_GRANITE && answers[i].thinks;
    return (struct calls_opts){.format = answers[i].format,
                               .answers = has_marks ? CALLS_ERNIE : CALLS_PLAIN,
                               .think_open = answers[i].thinks ? "<think>" : NULL,
                               .think_close = answers[i].thinks ? "</think>" : NULL,
                               .begins_thinking = answers[i].begins_thinking,
                               .tools = tool,
                               .n_tools = 1};
}

static void answers_split_the_same_in_any_pieces(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        struct calls_tool tool;
        const struct calls_opts opts = opts_of(i, &tool);
        size_t len = strlen(answers[i].text);

        for (size_t piece = 0; piece <= len + 20; piece++) {
            struct calls_sink sink = {0};

            calls_sink_run(&sink, &opts, bytes_str(answers[i].text), piece <= len ? piece : 0,
                           answers[i].is_cut);
            if (!bytes_is(buf_view(&sink.out), answers[i].out))
                fail_msg("answer %zu, %s, in pieces of %zu: %.*s", i, answers[i].text, piece,
                         (int)sink.out.len_bytes, (const char *)sink.out.data);
            buf_fini(&sink.out);
        }
    }
}

/* String values between tags are streamed as they are written. */
static void strings_in_tags_stream(void **state)
{
    struct calls_tool tool = {.name = bytes_str("f"), .schema = bytes_str(calls_sink_schema)};
    const struct calls_opts opts = {.format = CALLS_XML, .tools = &tool, .n_tools = 1};
    struct calls_sink sink = {0};

    calls_sink_run(&sink, &opts, bytes_str(FN("f", PAR("s", "0123456789012345678901234567890123456789"))), 4,
                   false);
    assert_true(sink.n_argument_pieces >= 10);
    buf_fini(&sink.out);
}

static void calls_may_be_ignored(void **state)
{
    const struct calls_opts plain = {.format = CALLS_MISTRAL, .ignores_calls = true};
    const struct calls_opts cohere = {.format = CALLS_COHERE, .ignores_calls = true};
    const struct calls_opts fallback = {.format = CALLS_HERMES, .answers = CALLS_COHERE};
    const struct calls_opts harmony = {.format = CALLS_HARMONY, .ignores_calls = true};
    struct calls_sink sink = {0};

    calls_sink_run(&sink, &plain, bytes_str("[TOOL_CALLS]f[ARGS]{}"), 3, false);
    assert_true(bytes_is(buf_view(&sink.out), "[TOOL_CALLS]f[ARGS]{}"));
    buf_clear(&sink.out);
    calls_sink_run(&sink, &cohere, bytes_str("<|START_RESPONSE|>a <|START_ACTION|>b<|END_RESPONSE|>"), 3,
                   false);
    assert_true(bytes_is(buf_view(&sink.out), "a <|START_ACTION|>b"));
    buf_clear(&sink.out);
    calls_sink_run(&sink, &fallback, bytes_str("<|START_RESPONSE|>a<|END_RESPONSE|>"), 3, false);
    assert_true(bytes_is(buf_view(&sink.out), "a"));
    buf_clear(&sink.out);
    calls_sink_run(&sink, &harmony, bytes_str("<|channel|>analysis<|message|>a<|end|>" TO("f", "{}")), 3,
                   false);
    assert_string_equal((char *)sink.out.data, "~a~{}");
    buf_fini(&sink.out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_split_the_same_in_any_pieces),
        cmocka_unit_test(strings_in_tags_stream),
        cmocka_unit_test(calls_may_be_ignored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
