/* injected - finds out from events.jsonl which faults on purpose a run has had already.
 *
 * Threads: any. */
#ifndef REPORT_INJECTED_H
#define REPORT_INJECTED_H

#include "inject/inject.h"

/* Mark the faults of the list that have happened as spent; returns how many.  A file that cannot be
 * read holds none. */
int injected_spend(const char *events_path, struct injection_list *l);

#endif
