/* SPDX-License-Identifier: Apache-2.0 */
/* Models in several files: names, parts that belong together, and parts that do not. */
#include "tests/unit/check.h"

#include "base/check.h"
#include "base/err.h"
#include "gguf/gguf_priv.h"
#include "tests/unit/gguf/image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names ---- */

static void part_names_are_read(void **state)
{
    struct gguf_part part;
    struct buf path = {0};

    assert_true(gguf_part_name(bytes_str("/m/a-b-00002-of-00017.gguf"), &part));
    assert_int_equal(part.number, 2);
    assert_int_equal(part.count, 17);
    assert_true(bytes_is(part.prefix, "/m/a-b"));
    gguf_part_path(&part, 17, &path);
    assert_true(bytes_is(buf_view(&path), "/m/a-b-00017-of-00017.gguf"));
    buf_fini(&path);
}

static void other_names_are_not_parts(void **state)
{
    static const char *const names[] = {
        "",
        "a.gguf",
        "-00001-of-00002.gguf",
        "/m/-00001-of-00002.gguf",
        "a-0001-of-00002.gguf",
        "a-00001-of-0002.gguf",
        "a-00001-or-00002.gguf",
        "a-00001-of-00002.ggug",
        "a-00001-of-00002.gguf.part",
        "a-00000-of-00002.gguf",
        "a-00003-of-00002.gguf",
        "a-0000x-of-00002.gguf",
        "a_00001-of-00002.gguf",
    };
    struct gguf_part part;

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_false(gguf_part_name(bytes_str(names[i]), &part));
}

static void the_models_name_has_no_number(void **state)
{
    char name[16];

    gguf_model_name("/m/tiny-00001-of-00002.gguf", name, sizeof(name));
    assert_string_equal(name, "tiny");
    gguf_model_name("tiny.gguf", name, sizeof(name));
    assert_string_equal(name, "tiny");
    gguf_model_name("/m/tiny", name, sizeof(name));
    assert_string_equal(name, "tiny");
    gguf_model_name("a-name-of-more-than-fifteen.gguf", name, sizeof(name));
    assert_string_equal(name, "a-name-of-more-");
    gguf_model_name("/m/a \"b\"\\c\n \xe9\xc3\xa9.gguf", name, sizeof(name));
    assert_string_equal(name, "a _b__c_ _\xc3\xa9");
    gguf_model_name("fourteen-bytes\xc3\xa9.gguf", name, sizeof(name));
    assert_string_equal(name, "fourteen-bytes");
}

/* ---- parts as files ---- */

struct folder {
    char path[32];
    char file[96];
};

struct part { /* fields that a test makes wrong */
    uint16_t number, count;
    int32_t n_tensors;
    const char *arch; /* NULL: no such key */
    const char *tensor;
    uint8_t fill;
    size_t cut_bytes; /* bytes cut from the end */
};

static void image_u16(struct buf *image, const char *name, uint16_t value)
{
    uint8_t raw[2] = {(uint8_t)value, (uint8_t)(value >> 8)};

    image_key_raw(image, name, GGUF_U16, raw, sizeof(raw));
}

static void part_image(struct buf *image, const struct part *part)
{
    image_header(image, 3, part->tensor != NULL, part->arch != NULL ? 4 : 3);
    image_u16(image, "split.no", part->number);
    image_u16(image, "split.count", part->count);
    image_str(image, "split.tensors.count");
    image_u32(image, GGUF_I32);
    image_u32(image, (uint32_t)part->n_tensors);
    if (part->arch != NULL) {
        image_str(image, "general.architecture");
        image_u32(image, GGUF_STRING);
        image_str(image, part->arch);
    }
    if (part->tensor == NULL)
        return;
    image_tensor(image, part->tensor, 4, DTYPE_F32, 0);
    image_pad(image, 32);
    for (int i = 0; i < 16; i++)
        buf_append_byte(image, part->fill);
    image->len_bytes -= part->cut_bytes;
}

static const char *name_file(struct folder *folder, int number, int count)
{
    snprintf(folder->file, sizeof(folder->file), "%s/m-%05d-of-%05d.gguf", folder->path, number, count);
    return folder->file;
}

static void save_part(struct folder *folder, int number, const struct part *part)
{
    struct buf image = {0};
    FILE *file;

    part_image(&image, part);
    file = fopen(name_file(folder, number, 3), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(image.data, 1, image.len_bytes, file), image.len_bytes);
    fclose(file);
    buf_fini(&image);
}

static const struct part GOOD[3] = {
    {.number = 0, .count = 3, .n_tensors = 2, .arch = "llama"},
    {.number = 1, .count = 3, .n_tensors = 2, .tensor = "a", .fill = 1},
    {.number = 2, .count = 3, .n_tensors = 2, .tensor = "b", .fill = 2},
};

static int open_folder(void **state)
{
    struct folder *folder = calloc(1, sizeof(*folder));

    strcpy(folder->path, "/tmp/baton-split-XXXXXX");
    if (mkdtemp(folder->path) == NULL)
        return -1;
    *state = folder;
    for (int i = 0; i < 3; i++)
        save_part(folder, i + 1, &GOOD[i]);
    return 0;
}

static int close_folder(void **state)
{
    struct folder *folder = *state;

    for (int i = 0; i < 3; i++)
        unlink(name_file(folder, i + 1, 3));
    unlink(name_file(folder, 1, 4));
    rmdir(folder->path);
    free(folder);
    return 0;
}

static void any_part_opens_the_whole(void **state)
{
    char fingerprints[3][33];

    for (int i = 0; i < 3; i++) {
        struct fault fault = {0};
        struct gguf *gguf = NULL;
        struct bytes arch;

        assert_int_equal(gguf_open(name_file(*state, i + 1, 3), &fault, &gguf), 0);
        assert_int_equal(gguf_part_count(gguf), 3);
        assert_int_equal(gguf_tensor_count(gguf), 2);
        assert_int_equal(gguf_get_str(gguf, "general.architecture", NULL, &arch), 0);
        for (uint8_t t = 0; t < 2; t++) {
            const struct gguf_tensor *tensor = gguf_tensor_find(gguf, t == 0 ? "a" : "b");
            assert_ptr_equal(tensor, gguf_tensor_at(gguf, t));
            assert_int_equal(((const uint8_t *)tensor->data)[15], t + 1);
            gguf_forget(gguf, tensor);
            assert_int_equal(((const uint8_t *)tensor->data)[0], t + 1);
        }
        assert_true(gguf_file_bytes(gguf) > 3 * 100);
        gguf_fingerprint(gguf, fingerprints[i]);
        gguf_close(gguf);
    }
    assert_string_equal(fingerprints[0], fingerprints[1]);
    assert_string_equal(fingerprints[0], fingerprints[2]);
}

/* A link of another name, and one of the right name in a folder without the other parts. */
static void a_link_to_a_part_opens_the_whole(void **state)
{
    static const char *const names[] = {"current.gguf", "alone/m-00001-of-00003.gguf"};
    struct folder *folder = *state;
    char alone[64], link[128];

    snprintf(alone, sizeof(alone), "%s/alone", folder->path);
    assert_int_equal(mkdir(alone, 0700), 0);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct fault fault = {0};
        struct gguf *gguf = NULL;

        snprintf(link, sizeof(link), "%s/%s", folder->path, names[i]);
        assert_int_equal(symlink(name_file(folder, i == 0 ? 2 : 1, 3), link), 0);
        assert_int_equal(gguf_open(link, &fault, &gguf), 0);
        assert_int_equal(gguf_tensor_count(gguf), 2);
        gguf_close(gguf);
        unlink(link);
    }
    rmdir(alone);
}

static void every_part_is_fingerprinted(void **state)
{
    struct part changed = GOOD[2];
    char before[33], after[33];
    struct gguf *gguf = NULL;

    assert_int_equal(gguf_open(name_file(*state, 1, 3), NULL, &gguf), 0);
    gguf_fingerprint(gguf, before);
    gguf_close(gguf);
    changed.fill = 3;
    save_part(*state, 3, &changed);
    assert_int_equal(gguf_open(name_file(*state, 1, 3), NULL, &gguf), 0);
    gguf_fingerprint(gguf, after);
    gguf_close(gguf);
    assert_string_not_equal(before, after);
}

/* Opens part 1, which must fail with this error. */
static void expect(struct folder *folder, int code, const char *text)
{
    struct fault fault = {0};
    struct gguf *gguf = NULL;

    assert_int_equal(gguf_open(name_file(folder, 1, 3), &fault, &gguf), code);
    if (strstr(fault.text, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", fault.text, text);
    assert_null(gguf);
}

static void a_missing_part_is_named(void **state)
{
    unlink(name_file(*state, 2, 3));
    expect(*state, E_NOT_FOUND, "part 'm-00002-of-00003.gguf': cannot open: No such file");
}

static void a_cut_part_is_named(void **state)
{
    struct part part = GOOD[2];

    part.cut_bytes = 1;
    save_part(*state, 3, &part);
    expect(*state, E_TRUNCATED, "part 'm-00003-of-00003.gguf': tensor 'b'");
    part.cut_bytes = 70;
    save_part(*state, 3, &part);
    expect(*state, E_TRUNCATED, "part 'm-00003-of-00003.gguf'");
}

static void foreign_parts_are_named(void **state)
{
    struct part part = GOOD[1];

    part.arch = "qwen2";
    save_part(*state, 2, &part);
    expect(*state, E_FORMAT, "part 2 of 3: key 'general.architecture' differs");
    part = GOOD[1];
    part.n_tensors = 5;
    save_part(*state, 2, &part);
    expect(*state, E_FORMAT, "part 2 of 3: its model has 5 tensors");
    part = GOOD[1];
    part.count = 4;
    save_part(*state, 2, &part);
    expect(*state, E_FORMAT, "part 2 of 3: it is one of 4 parts");
    part.count = 1;
    save_part(*state, 2, &part);
    expect(*state, E_FORMAT, "part 2 of 3: it is one of 1 parts");
}

static void doubled_parts_and_tensors_are_named(void **state)
{
    struct part part = GOOD[1];

    save_part(*state, 3, &GOOD[1]);
    expect(*state, E_FORMAT, "part 3 of 3: key 'split.no' says that it is part 2");
    part.number = 2;
    save_part(*state, 3, &part);
    expect(*state, E_FORMAT, "part 3 of 3: tensor 'a' is in an earlier part too");
    part.tensor = NULL;
    save_part(*state, 3, &part);
    expect(*state, E_FORMAT, "the parts have 1 tensors together; key 'split.tensors.count' says 2");
}

static void a_part_needs_its_name(void **state)
{
    struct fault fault = {0};
    struct gguf *gguf = NULL;
    char from[96];

    strcpy(from, name_file(*state, 1, 3));
    assert_int_equal(rename(from, name_file(*state, 1, 4)), 0);
    assert_int_equal(gguf_open(name_file(*state, 1, 4), &fault, &gguf), E_FORMAT);
    assert_non_null(strstr(fault.text, "it is part 1 of 3, but its name says 1 of 4"));

    snprintf(from, sizeof(from), "%s/whole.gguf", ((struct folder *)*state)->path);
    assert_int_equal(rename(name_file(*state, 1, 4), from), 0);
    assert_int_equal(gguf_open(from, &fault, &gguf), E_FORMAT);
    assert_non_null(strstr(fault.text, "its name must end in -00001-of-00003.gguf"));
    unlink(from);
    assert_null(gguf);
}

static void wrong_numbers_are_refused(void **state)
{
    struct part part = GOOD[0];

    part.number = 3;
    save_part(*state, 1, &part);
    expect(*state, E_RANGE, "key 'split.no': 3, but 'split.count' is 3");
    part = GOOD[0];
    part.count = 5000;
    save_part(*state, 1, &part);
    expect(*state, E_LIMIT, "key 'split.count': 5000 parts");
    part = GOOD[0];
    part.n_tensors = -1;
    save_part(*state, 1, &part);
    expect(*state, E_FORMAT, "split.tensors.count");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(part_names_are_read),
        cmocka_unit_test(other_names_are_not_parts),
        cmocka_unit_test(the_models_name_has_no_number),
        cmocka_unit_test_setup_teardown(any_part_opens_the_whole, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(a_link_to_a_part_opens_the_whole, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(every_part_is_fingerprinted, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(a_missing_part_is_named, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(a_cut_part_is_named, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(foreign_parts_are_named, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(doubled_parts_and_tensors_are_named, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(a_part_needs_its_name, open_folder, close_folder),
        cmocka_unit_test_setup_teardown(wrong_numbers_are_refused, open_folder, close_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
