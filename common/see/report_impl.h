/* report_impl - what the pages of report.c and compare.c have in common.
 *
 * Threads: any. */
#ifndef SEE_REPORT_IMPL_H
#define SEE_REPORT_IMPL_H

#include <jansson.h>

#include "base/buf.h"

/* The beginning of a page up to its <head>'s end, which it leaves open; `title` is any text. */
void report_put_head(struct buf *out, const char *title);

/* A document as <script type="application/json" id="dptrain-NAME">.  Takes o. */
void report_put_json(struct buf *out, const char *name, json_t *o);

#endif
