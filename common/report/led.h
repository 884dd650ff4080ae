/* led - what events.jsonl tells of the driver that led a run before.
 *
 * Only the end of the events is read, 17 MiB at most, however long the run was.
 *
 * Threads: any. */
#ifndef REPORT_LED_H
#define REPORT_LED_H

#include <jansson.h>

#include "session/driver.h"

/* Zero where the file tells nothing, or cannot be read. */
void led_read(const char *events_path, struct led *out);

/* The account that an event has, or zeros. */
struct account_times led_times(const json_t *event);
struct energy_sums led_energy(const json_t *event); /* likewise the joules of the run */

#endif
