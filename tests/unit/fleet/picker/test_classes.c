/* SPDX-License-Identifier: Apache-2.0 */
/* Classes: their definitions, the class of a request, and that no request exceeds its key's class. */
#include "tests/unit/check.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "fleet/picker/classes.h"

static struct picker_classes classes;

static int add(const char *text)
{
    struct fault fault = {0};
    int rc = picker_classes_add(&classes, bytes_of(text, strlen(text)), &fault);

    assert_true((rc < 0) == (fault.text[0] != '\0'));
    return rc;
}

static int begin(void **state)
{
    picker_classes_init(&classes, 500 * NS_PER_MS, 50 * NS_PER_MS);
    return 0;
}

static void a_class_takes_what_it_leaves_out_from_the_default(void **state)
{
    assert_int_equal(add("default ttft=1s"), 0);
    assert_int_equal(add("  interactive \titl=40ms priority=10 weight=4  "), 0);
    assert_int_equal(add("batch ttft=1min share=25%"), 0);
    assert_int_equal(classes.n, 3);
    assert_int_equal(classes.all[0].ttft_slo_ns, NS_PER_S);
    assert_int_equal(classes.all[1].ttft_slo_ns, NS_PER_S);
    assert_int_equal(classes.all[1].itl_slo_ns, 40 * NS_PER_MS);
    assert_int_equal(classes.all[1].priority, 10);
    assert_int_equal(classes.all[1].weight, 4);
    assert_int_equal(classes.all[2].ttft_slo_ns, 60 * NS_PER_S);
    assert_true(classes.all[2].share == 0.25);
}

static void a_wrong_definition_changes_nothing(void **state)
{
    static const char *const wrong[] = {
        "",
        " ",
        "a b",
        "na/me",
        "a priority=101",
        "a weight=0",
        "a share=101%",
        "a share=%",
        "a ttft=0",
        "a ttft=-1s",
        "a itl=",
        "a ttft=1s itl=1s ttft=2s",
        "a share=10% share=10%",
        "a_name_that_is_longer_than_31_bytes ttft=1s",
        "a xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx=1"};
    struct picker_classes before = classes;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(add(wrong[i]), E_FORMAT);
        assert_memory_equal(&before, &classes, sizeof(before));
    }
    assert_int_equal(add("twice"), 0);
    assert_int_equal(add("twice"), E_FORMAT);
    assert_int_equal(add("default weight=2"), 0);
    assert_int_equal(add("default weight=3"), E_FORMAT);
    for (char name[] = "c0"; classes.n < PICKER_MAX_CLASSES; name[1]++)
        assert_int_equal(add(name), 0);
    assert_int_equal(add("many"), E_FORMAT);
}

static void a_wish_never_exceeds_the_keys_class(void **state)
{
    static const char *const names[] = {"", "default", "high", "low", "heavy", "paused", "no such", "hi"};
    const size_t n = sizeof(names) / sizeof(names[0]);

    assert_int_equal(add("high priority=10 weight=4"), 0);
    assert_int_equal(add("low share=10%"), 0);
    assert_int_equal(add("heavy weight=100"), 0);
    assert_int_equal(add("paused may-be-paused=1min"), 0);
    assert_int_equal(picker_classes_choose(&classes, "", "paused"), 4);
    assert_int_equal(picker_classes_choose(&classes, "paused", "default"), 4);
    assert_int_equal(picker_classes_choose(&classes, "", ""), 0);
    assert_int_equal(picker_classes_choose(&classes, "", "high"), 0);
    assert_int_equal(picker_classes_choose(&classes, "", "low"), 2);
    assert_int_equal(picker_classes_choose(&classes, "high", ""), 1);
    assert_int_equal(picker_classes_choose(&classes, "high", "default"), 0);
    assert_int_equal(picker_classes_choose(&classes, "high", "heavy"), 1);
    assert_int_equal(picker_classes_choose(&classes, "low", "default"), 2);
    for (size_t a = 0; a < n; a++)
        for (size_t w = 0; w < n; w++) {
            const struct picker_class *most = &classes.all[picker_classes_choose(&classes, names[a], "")];
            const struct picker_class *it = &classes.all[picker_classes_choose(&classes, names[a], names[w])];

            assert_true(it->priority <= most->priority && it->weight <= most->weight &&
                        it->share <= most->share && it->pause_ns >= most->pause_ns);
        }
}

static void higher_priorities_come_first(void **state)
{
    uint32_t order[PICKER_MAX_CLASSES];

    assert_int_equal(add("default priority=5"), 0);
    assert_int_equal(add("high priority=10"), 0);
    assert_int_equal(add("low priority=0"), 0);
    assert_int_equal(add("equal"), 0);
    picker_classes_order(&classes, order);
    assert_int_equal(order[0], 1);
    assert_int_equal(order[1], 0);
    assert_int_equal(order[2], 3);
    assert_int_equal(order[3], 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_class_takes_what_it_leaves_out_from_the_default, begin),
        cmocka_unit_test_setup(a_wrong_definition_changes_nothing, begin),
        cmocka_unit_test_setup(a_wish_never_exceeds_the_keys_class, begin),
        cmocka_unit_test_setup(higher_priorities_come_first, begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
