/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts text into words before byte pair encoding.
 *
 * A vocabulary is trained on text that regular expressions cut, so its user must cut text in the same way. A
 * rule is a list of passes, each with one pattern. The first pass cuts the text; each later pass cuts every
 * piece of the pass before. The pieces of a pass are its matches and the gaps between them:
 *
 *     text                     x=1234 5
 *     digits                   x=|1|2|3|4| |5      pass 1: \p{N}
 *     words of each            x|=|1|2|3|4| |5     pass 2: the gpt-2 pattern; a piece's end is the text's end
 *
 * The caller gets the pieces one at a time. Each pass has a level, which holds its piece of the pass before
 * and the next match in it. So each pass reads the text once, and nothing is stored.
 *
 * The patterns are few and simple, so they are written as code: pretok_match.c (a whole rule),
 * pretok_passes.c (one of several passes), pretok_cased.c (sets of characters that patterns ask for). The code reads each
 * character a bounded number of times and never backtracks, so hostile text takes no longer than other
 * text.
 * How to change it: docs/changes-worker.md, "A rule of pre-tokenisation". */
#include "text/token/pretok_priv.h"

#include "base/check.h"
#include "base/str.h"

struct pretok_pass {
    pretok_match match; /* NULL: matches the whitespace at the end */
    unsigned param;
};

/* The passes of a rule, after their number. */
#define PASSES(...)                                                                                          \
    {                                                                                                        \
        sizeof((struct pretok_pass[]){__VA_ARGS__}) / sizeof(struct pretok_pass),                            \
        {                                                                                                    \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }

static const struct pretok_rule {
    unsigned n_passes;
    struct pretok_pass passes[PRETOK_MAX_PASSES];
} rules[] = {
    [PRETOK_GPT2] = PASSES({match_gpt2, 0}),
    [PRETOK_LLAMA3] = PASSES({match_llama3, 3}),
    [PRETOK_QWEN2] = PASSES({match_llama3, 1}),
    [PRETOK_SEED] = PASSES({match_seed, 1}),
    [PRETOK_MINICPM5] = PASSES({match_numbers, 3}, {match_llama3, 3}),
    [PRETOK_QWEN35] = PASSES({match_qwen35, 1}),
    [PRETOK_GPT4O] = PASSES({match_cased, 3}),
    [PRETOK_TEKKEN] = PASSES({match_tekken, 1}),
    [PRETOK_TINY_AYA] = PASSES({match_digit_run, 0}, {match_digit_group, 0}, {match_cased, 3}),
    [PRETOK_YOUTU] = PASSES({match_youtu_cjk, 0}, {match_cased, 1}),
    [PRETOK_KIMI] = PASSES({match_kimi, 3}),
    [PRETOK_STARCODER] = PASSES({match_numbers, 1}, {match_gpt2, 0}),
    [PRETOK_FALCON] = PASSES({match_falcon_punct, 0}, {match_gpt2, 0}, {match_three_digits, 0}),
    [PRETOK_DEEPSEEK3] = PASSES({match_numbers, 3}, {match_kana_han, 0}, {match_deepseek3, 0}),
    [PRETOK_DEEPSEEK_CODER] = PASSES({match_newline, 0}, {match_letters, 0}, {match_punctuation, 0},
                                     {match_deepseek_cjk, 0}, {match_numbers, 1}),
    [PRETOK_DEEPSEEK_LLM] = PASSES({match_newline, 0}, {match_deepseek_letters, 0}, {match_deepseek_punct, 0},
                                   {NULL, 0}, {match_deepseek_cjk, 0}, {match_numbers, 0}),
    [PRETOK_EXAONE_MOE] = PASSES({match_phrases, 1}),
    [PRETOK_AFMOE] =
        PASSES({match_numbers, 0}, {match_digit_group, 1}, {match_afmoe_scripts, 0}, {match_deepseek3, 0}),
    [PRETOK_SUPERBPE] = PASSES({match_numbers, 0}, {match_thousands, 0}),
};
_Static_assert(ARRAY_LEN(rules) == PRETOK_N_RULES, "a row for each rule");

/* Names in tokenizer.ggml.pre. Models that cut text in the same way share a rule. */
static const struct {
    const char *name;
    enum pretok rule;
} names[] = {
    {"default", PRETOK_GPT2},
    {"gpt-2", PRETOK_GPT2},
    {"phi-2", PRETOK_GPT2},
    {"mpt", PRETOK_GPT2},
    {"olmo", PRETOK_GPT2},
    {"jais", PRETOK_GPT2},
    {"trillion", PRETOK_GPT2},
    {"gigachat", PRETOK_GPT2},
    {"exaone4", PRETOK_GPT2},
    {"mellum", PRETOK_GPT2},
    {"granite-docling", PRETOK_GPT2},
    {"a.x-4.0", PRETOK_GPT2},
    {"llama-bpe", PRETOK_LLAMA3},
    {"llama3", PRETOK_LLAMA3},
    {"llama-v3", PRETOK_LLAMA3},
    {"falcon3", PRETOK_LLAMA3},
    {"falcon-h1", PRETOK_LLAMA3},
    {"lfm2", PRETOK_LLAMA3},
    {"pixtral", PRETOK_LLAMA3},
    {"midm-2.0", PRETOK_LLAMA3},
    {"dbrx", PRETOK_LLAMA3},
    {"smaug-bpe", PRETOK_LLAMA3},
    {"glm4", PRETOK_LLAMA3},
    {"chatglm-bpe", PRETOK_LLAMA3},
    {"qwen2", PRETOK_QWEN2},
    {"deepseek-r1-qwen", PRETOK_QWEN2},
    {"stablelm2", PRETOK_QWEN2},
    {"hunyuan", PRETOK_QWEN2},
    {"megrez", PRETOK_QWEN2},
    {"grok-2", PRETOK_QWEN2},
    {"solar-open", PRETOK_QWEN2},
    {"kormo", PRETOK_QWEN2},
    {"f2llmv2", PRETOK_QWEN2},
    {"bailingmoe", PRETOK_QWEN2},
    {"bailingmoe2", PRETOK_QWEN2},
    {"llada-moe", PRETOK_QWEN2},
    {"seed-coder", PRETOK_SEED},
    {"minicpm5", PRETOK_MINICPM5},
    {"qwen35", PRETOK_QWEN35},
    {"gpt-4o", PRETOK_GPT4O},
    {"llama4", PRETOK_GPT4O},
    {"kanana2", PRETOK_GPT4O},
    {"minimax-m2", PRETOK_GPT4O},
    {"talkie", PRETOK_GPT4O},
    {"tiny_aya", PRETOK_TINY_AYA},
    {"cohere2moe", PRETOK_TINY_AYA},
    {"youtu", PRETOK_YOUTU},
    {"tekken", PRETOK_TEKKEN},
    {"kimi-k2", PRETOK_KIMI},
    {"starcoder", PRETOK_STARCODER},
    {"refact", PRETOK_STARCODER},
    {"command-r", PRETOK_STARCODER},
    {"smollm", PRETOK_STARCODER},
    {"codeshell", PRETOK_STARCODER},
    {"exaone", PRETOK_STARCODER},
    {"minerva-7b", PRETOK_STARCODER},
    {"mellum2", PRETOK_STARCODER},
    {"falcon", PRETOK_FALCON},
    {"deepseek-v3", PRETOK_DEEPSEEK3},
    {"hunyuan-dense", PRETOK_DEEPSEEK3},
    {"joyai-llm", PRETOK_DEEPSEEK3},
    {"hy_v4", PRETOK_DEEPSEEK3},
    {"deepseek-llm", PRETOK_DEEPSEEK_LLM},
    {"deepseek-coder", PRETOK_DEEPSEEK_CODER},
    {"exaone-moe", PRETOK_EXAONE_MOE},
    {"afmoe", PRETOK_AFMOE},
    {"superbpe", PRETOK_SUPERBPE},
};

const char *pretok_rule_name(uint32_t index, enum pretok *rule_out)
{
    if (index >= ARRAY_LEN(names))
        return NULL;
    *rule_out = names[index].rule;
    return names[index].name;
}

void pretok_begin(struct pretok_cursor *cursor, enum pretok rule, struct bytes text)
{
    *cursor = (struct pretok_cursor){.text = text.data,
                                     .passes = rules[rule].passes,
                                     .n_passes = rules[rule].n_passes,
                                     .len_bytes = text.len_bytes};
}

static size_t char_end(struct bytes text, size_t at)
{
    size_t len_bytes;

    if (text.data[at] < 0x80)
        return at + 1;
    utf8_next(text, at, &len_bytes);
    return at + len_bytes;
}

/* Finds the next match of a pass in the rest of its piece; the piece's end when there is none. */
static void pretok_find(const struct pretok_pass *pass, struct bytes text, struct pretok_level *level)
{
    level->hit_end = level->end;
    if (pass->match == NULL) {
        level->hit = trailing_space(text, level->at);
        return;
    }
    for (level->hit = level->at; level->hit < level->end; level->hit = char_end(text, level->hit)) {
        size_t end = pass->match(text, level->hit, pass->param);

        if (end > level->hit) {
            level->hit_end = end;
            return;
        }
    }
}

/* Returns where the next piece of the first n passes ends. */
static size_t next_piece(struct pretok_cursor *cursor, unsigned n)
{
    if (n == 0)
        return cursor->len_bytes;

    struct pretok_level *level = &cursor->levels[n - 1];
    bool is_new = level->at == level->end;
    if (is_new)
        level->end = next_piece(cursor, n - 1);
    if (is_new || level->hit < level->at)
        pretok_find(&cursor->passes[n - 1], bytes_of(cursor->text, level->end), level);
    level->at = level->hit > level->at ? level->hit : level->hit_end;
    return level->at;
}

/* A fast path without levels: most rules have one pass, and nearly all its pieces are matches. */
static bool take_match(struct pretok_cursor *cursor)
{
    struct pretok_level *level = &cursor->levels[0];
    size_t at = level->at, end;

    if (cursor->n_passes != 1 || level->hit > at || cursor->passes->match == NULL)
        return false;
    end = cursor->passes->match(bytes_of(cursor->text, cursor->len_bytes), at, cursor->passes->param);
    if (end == at)
        return false;
    level->end = cursor->len_bytes;
    level->hit = at;
    level->at = level->hit_end = end;
    return true;
}

size_t pretok_next(struct pretok_cursor *cursor)
{
    if (take_match(cursor))
        return cursor->levels[0].at;
    return next_piece(cursor, cursor->n_passes);
}
