/* Tests of cudnn_json: cuDNN, given the description of a GPU, returns every key and value of it, by
 * the same calls as for a real GPU. */
#include "../test.h"

#include <dlfcn.h>
#include <jansson.h>

#include "cudnn_json.h"
#include "plans.h"

static void *cudnn;

static void there_and_back(void **state)
{
    json_error_t error;
    json_t *want = json_loads(h200, 0, &error), *seen;
    struct err err;
    const char *key;
    json_t *value;
    char *text;

    (void)state;
    if (cudnn_json(cudnn, h200, &text, &err) < 0)
        fail_msg("%s", err.msg);
    seen = json_loads(text, 0, &error);
    if (!seen)
        fail_msg("%s: %s", error.text, text);
    json_object_foreach(want, key, value)
    {
        if (!json_equal(json_object_get(seen, key), value))
            fail_msg("\"%s\" is not in %s", key, text);
    }
    json_decref(want);
    json_decref(seen);
    free(text);
}

static void what_is_no_gpu(void **state)
{
    struct err err;
    char *text;

    (void)state;
    assert_int_equal(cudnn_json(cudnn, "{\"deviceName\": 7", &text, &err), ERR_DEVICE);
    assert_non_null(strstr(err.msg, "cuDNN does not describe the GPU: "));
    assert_int_equal(cudnn_json(NULL, h200, &text, &err), ERR_UNSUPPORTED);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(what_is_no_gpu),
    };

    cudnn = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!cudnn) {
        printf("no cuDNN: %s\n", argc > 1 ? dlerror() : "want its path");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
