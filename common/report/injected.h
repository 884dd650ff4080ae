/* injected - which faults on purpose a run has had already, by its events.jsonl.
 *
 * Threads: any. */
#ifndef REPORT_INJECTED_H
#define REPORT_INJECTED_H

#include "inject/inject.h"

/* Mark those in the list as spent; how many.  A file that cannot be read tells of none. */
int injected_spend(const char *events_path, struct injection_list *l);

#endif
