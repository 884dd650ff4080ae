/* Tests of metadata and metadata_read: which cloud a machine belongs to, and what the answers of
 * the metadata services mean. */
#include "../test.h"

#include <stdlib.h>
#include <string.h>

#include "../remove_tree.h"
#include "../write_file.h"
#include "daemon/metadata.h"
#include "daemon/metadata_read.h"

enum { NOW = 1795985600 }; /* 2026-11-29T20:53:20Z */

static void which_cloud(void **state)
{
    static const struct {
        const char *vendor, *product, *tag, *bios;
        enum metadata_cloud cloud;
    } cases[] = {
        {"Amazon EC2", "p5.48xlarge", "Amazon EC2", "1.0", METADATA_AWS},
        {"Xen", "HVM domU", "", "4.11.amazon", METADATA_AWS},
        {"Google", "Google Compute Engine", "", "Google", METADATA_GCP},
        {"Google", "Google Pixelbook", "", "Google", METADATA_NONE},
        {"Microsoft Corporation", "Virtual Machine", "7783-7084-3265-9085-8269-3286-77", "090008",
         METADATA_AZURE},
        {"Microsoft Corporation", "Virtual Machine", "1234-5678", "090008", METADATA_NONE},
        {"QEMU", "Standard PC (Q35 + ICH9, 2009)", "", "1.16", METADATA_NONE},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char root[] = "/tmp/dptrain-dmi-XXXXXX", line[128];
        const char *const names[] = {"sys_vendor", "product_name", "chassis_asset_tag",
                                     "bios_version"};
        const char *const words[] = {cases[i].vendor, cases[i].product, cases[i].tag,
                                     cases[i].bios};

        assert_non_null(mkdtemp(root));
        for (int k = 0; k < 4; k++) {
            snprintf(line, sizeof line, "%s\n", words[k]);
            write_file(root, names[k], line);
        }
        assert_int_equal(metadata_find(root), cases[i].cloud);
        remove_tree(root);
    }
    assert_int_equal(metadata_find("/nowhere"), METADATA_NONE);
}

enum reader { AWS, GCP, AZURE };

static int read_answer(enum reader r, const char *text, struct notice *out, struct err *err)
{
    const size_t n = strlen(text);

    if (r == AWS)
        return metadata_read_aws(text, n, NOW, out, err);
    return r == GCP ? metadata_read_gcp(text, n, out, err)
                    : metadata_read_azure(text, n, "vm_1", NOW, out, err);
}

#define EVENT(type, vms, before)                                                                \
    "{\"DocumentIncarnation\":3,\"Events\":[{\"EventId\":\"A1\",\"EventStatus\":\"Scheduled\"," \
    "\"EventType\":\"" type "\",\"ResourceType\":\"VirtualMachine\",\"Resources\":[" vms "],"   \
    "\"NotBefore\":\"" before "\",\"DurationInSeconds\":-1}]}"

static void what_answers_mean(void **state)
{
    static const struct {
        enum reader reader;
        const char *text;
        int rc;
        int64_t seconds;
    } cases[] = {
        {AWS, "{\"action\": \"terminate\", \"time\": \"2026-11-29T20:55:20Z\"}", 1, 120},
        {AWS, "{\"action\": \"stop\", \"time\": \"2026-11-29T20:53:00Z\"}", 1, 0},
        {AWS, "{\"action\": \"hibernate\"}", 1, -1},
        {AWS, "{\"action\": \"stop\", \"time\": \"2026-11-29T20:55:20+01:00\"}", 1, -1},
        {AWS, "{\"action\": \"stop\", \"time\": \"2999-11-29T20:53:00Z\"}", 1, 7 * 24 * 3600},
        {AWS, "{\"action\": 5}", ERR_PROTO, 0},
        {AWS, "[]", ERR_PROTO, 0},
        {AWS, "<html>\x1b[2J</html>", ERR_PROTO, 0},
        {GCP, "FALSE", 0, 0},
        {GCP, "NONE\n", 0, 0},
        {GCP, "MIGRATE_ON_HOST_MAINTENANCE", 0, 0},
        {GCP, "TRUE\n", 1, 30},
        {GCP, "TERMINATE_ON_HOST_MAINTENANCE", 1, -1},
        {GCP, "true", ERR_PROTO, 0},
        {GCP, "", ERR_PROTO, 0},
        {AZURE, "{\"DocumentIncarnation\":1,\"Events\":[]}", 0, 0},
        {AZURE, EVENT("Preempt", "\"vm_0\",\"vm_1\"", "Sun, 29 Nov 2026 20:53:50 GMT"), 1, 30},
        {AZURE, EVENT("Terminate", "\"vm_1\"", ""), 1, -1},
        {AZURE, EVENT("Redeploy", "\"vm_1\"", "Sun, 29 Nov 2026 21:08:20 GMT"), 1, 900},
        {AZURE, EVENT("Reboot", "\"vm_1\"", "soon"), 1, -1},
        {AZURE, EVENT("Freeze", "\"vm_1\"", "Sun, 29 Nov 2026 20:53:50 GMT"), 0, 0},
        {AZURE, EVENT("Preempt", "\"vm_10\"", "Sun, 29 Nov 2026 20:53:50 GMT"), 0, 0},
        {AZURE, EVENT("Preempt", "1", "Sun, 29 Nov 2026 20:53:50 GMT"), 0, 0},
        {AZURE, "{\"Events\":[1, {}, {\"Resources\": \"vm_1\"}]}", 0, 0},
        {AZURE, "{\"Events\":{}}", ERR_PROTO, 0},
        {AZURE, "{", ERR_PROTO, 0},
    };
    static const char *const names[] = {"aws", "gcp", "azure"};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct notice n = {.seconds = 0};
        struct err err = {.code = 0};
        const int rc = read_answer(cases[i].reader, cases[i].text, &n, &err);

        if (rc != cases[i].rc || (rc > 0 && n.seconds != cases[i].seconds))
            fail_msg("%s: %d, %lld s, %s", cases[i].text, rc, (long long)n.seconds, err.msg);
        if (rc > 0)
            assert_string_equal(n.source, names[cases[i].reader]);
        if (rc < 0)
            assert_null(strchr(err.msg, '\x1b'));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(which_cloud),
        cmocka_unit_test(what_answers_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
