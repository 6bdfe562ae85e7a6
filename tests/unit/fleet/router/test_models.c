/* SPDX-License-Identifier: Apache-2.0 */
/* Vocabularies arrive: a job thread builds models, and the loop continues meanwhile. */
#include "tests/unit/check.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/log.h"
#include "rig.h"

#define IMAGE_BYTES 3000

static struct rig rig;
static sem_t may_build;
static atomic_bool is_hanging;

static void hang(void *arg)
{
    (void)arg;
    atomic_store(&is_hanging, true);
    while (sem_wait(&may_build) != 0)
        continue;
}

static void nothing(void *arg)
{
    (void)arg;
}

static int part(struct link *from, uint64_t offset, size_t n)
{
    static uint8_t data[IMAGE_BYTES];
    Baton__VocabularyPart message = BATON__VOCABULARY_PART__INIT;

    message.fingerprint = rig.router.models[1].gen.fingerprint;
    message.offset = offset;
    message.total_bytes = IMAGE_BYTES;
    message.data = (ProtobufCBinaryData){.data = data, .len = n};
    return router_model_part(&rig.router, from, &message);
}

static void the_loop_does_not_build(void **state)
{
    struct router *router = &rig.router;
    struct router_model *model = &router->models[1];
    struct link *link;

    assert_int_equal(rig_open(&rig), 0);
    log_set_level(LOG_LEVEL_ERROR);
    assert_int_equal(ev_loop_new(&router->loop), 0);
    assert_int_equal(ev_jobs_new(1, 16, &router->job_threads), 0);
    assert_int_equal(sem_init(&may_build, 0, 0), 0);
    assert_int_equal(ev_jobs_submit(router->job_threads, router->loop, hang, nothing, NULL), 0);
    link = rig_worker(&rig, "d0", PICKER_DECODE, 1, 1000);
    model->is_ready = false;
    model->image_bytes = IMAGE_BYTES;
    model->source = link;

    assert_int_equal(part(link, 5, 100), E_PROTO); /* not the first part */
    assert_int_equal(part(link, 0, 1000), 0);
    assert_int_equal(part(link, 1000, IMAGE_BYTES - 1000), 0);
    assert_non_null(model->build);
    assert_false(model->is_failed);
    router_model_fetch(router, model); /* is arriving: not requested again */
    assert_null(model->source);
    assert_false(rig_submit(&rig, 10, 1)->has_failed); /* of another model */

    sem_post(&may_build);
    ev_jobs_free(router->job_threads); /* ends the build under way */
    router->job_threads = NULL;
    ev_loop_drain(router->loop);
    assert_null(model->build);
    assert_true(model->is_failed); /* zeros are not a vocabulary */
    (void)state;
    ev_loop_free(router->loop);
    rig_close(&rig);
}

/* Only a connected worker holds a model to its block size.  Jobs that wait meanwhile go on with the new one. */
static void a_model_takes_another_block_size(void **state)
{
    struct rig_client *early, *late;
    struct link *d;

    assert_int_equal(rig_open(&rig), 0);
    d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 1000);
    early = rig_submit(&rig, 640, 50);
    rig_tokens(&rig, d, 0, 3);
    assert_int_equal(job_of(early->handle)->n_blocks, 20);
    rig.block_tokens = 16;
    assert_null(rig_worker(&rig, "d1", PICKER_DECODE, 2, 1000));
    assert_int_equal(rig.router.models[0].gen.block_tokens, 32);

    rig_lose(&rig, d);
    d = rig_worker(&rig, "d1", PICKER_DECODE, 2, 1000);
    assert_non_null(d);
    assert_int_equal(rig.router.models[0].gen.block_tokens, 16);
    assert_int_equal(rig_last(d)->n_tokens, 643);
    assert_int_equal(job_of(early->handle)->n_blocks, 0); /* of the old size */
    late = rig_submit(&rig, 640, 50);
    assert_int_equal(job_of(late->handle)->n_blocks, 40);
    rig.block_tokens = 64; /* the same worker in another life, before its old link is down */
    assert_non_null(rig_worker(&rig, "d1", PICKER_DECODE, 3, 1000));
    assert_int_equal(rig.router.models[0].gen.block_tokens, 64);
    (void)state;
    rig_close(&rig);
}

/* Registers a worker with a model of its own. */
static struct link *worker_of_model(unsigned number)
{
    char node[16], fingerprint[33];

    snprintf(node, sizeof(node), "d%u", number);
    snprintf(fingerprint, sizeof(fingerprint), "%032u", number);
    rig.fingerprint = fingerprint;
    return rig_worker(&rig, node, PICKER_DECODE, number, 1000);
}

static void rows_are_used_again(void **state)
{
    struct link *links[ROUTER_MAX_MODELS];

    assert_int_equal(rig_open(&rig), 0);
    rig.router.models[0].n_held = rig.router.models[1].n_held = 1;
    for (unsigned i = 2; i < ROUTER_MAX_MODELS; i++)
        assert_non_null(links[i] = worker_of_model(i));
    assert_int_equal(rig.router.n_models, ROUTER_MAX_MODELS);
    assert_null(worker_of_model(100));

    rig_lose(&rig, links[5]);
    assert_true(strcmp(rig.router.models[5].gen.fingerprint, "00000000000000000000000000000005") == 0);
    assert_non_null(worker_of_model(100));
    assert_true(strcmp(rig.router.models[5].gen.fingerprint, "00000000000000000000000000000100") == 0);
    assert_int_equal(rig.router.n_models, ROUTER_MAX_MODELS);
    assert_null(worker_of_model(5));

    rig_lose(&rig, links[6]);
    rig.router.models[6].n_held++; /* by a request of the front */
    assert_null(worker_of_model(5));
    rig.router.models[6].n_held--;
    assert_non_null(worker_of_model(5));
    (void)state;
    rig_close(&rig);
}

static struct router_model *found(void)
{
    struct backend backend = router_backend(&rig.router);

    return container_of(backend.ops->model(backend.self, "sim"), struct router_model, gen);
}

/* A fleet changes to another file: the workers of both share the requests for their name. */
static void models_of_one_name_share_its_requests(void **state)
{
    struct router_model *models = rig.router.models;

    assert_int_equal(rig_open(&rig), 0);
    assert_non_null(rig_worker(&rig, "d0", PICKER_DECODE, 1, 1000));
    assert_ptr_equal(found(), &models[0]);
    strcpy(models[1].gen.name, "sim");
    assert_ptr_equal(found(), &models[0]); /* the other one has no worker */
    rig.fingerprint = models[1].gen.fingerprint;
    assert_non_null(rig_worker(&rig, "d1", PICKER_DECODE, 2, 1000));
    assert_non_null(rig_worker(&rig, "d2", PICKER_DECODE, 3, 1000));
    assert_ptr_equal(found(), &models[1]);
    rig_submit_model(&rig, 1, 40, 5);
    rig_submit_model(&rig, 1, 40, 5);
    assert_ptr_equal(found(), &models[0]);
    rig_submit(&rig, 40, 5);
    assert_ptr_equal(found(), &models[1]);
    (void)state;
    rig_close(&rig);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loop_does_not_build), cmocka_unit_test(models_of_one_name_share_its_requests),
        cmocka_unit_test(rows_are_used_again), cmocka_unit_test(a_model_takes_another_block_size)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
