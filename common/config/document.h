/* document - a YAML text as libyaml's document, with the bounds that make it safe to load a text
 * that a stranger may have written.
 *
 * Life:    document_load -> yaml_document_delete.
 * Threads: any; nothing is kept.
 * Errors:  ERR_CONFIG, with `origin`, line and column in front; ERR_NOMEM. */
#ifndef CONFIG_DOCUMENT_H
#define CONFIG_DOCUMENT_H

#include <stddef.h>
#include <yaml.h>

#include "base/err.h"

int document_load(const char *origin, const char *text, size_t len, yaml_document_t *out,
                  struct err *err);

#endif
