/* page - the files of the page that --http shows.  The build makes them from common/see/page/, so
 * the daemon carries them and asks no other host.
 *
 * Threads: any; constant. */
#ifndef SEE_PAGE_H
#define SEE_PAGE_H

#include <stddef.h>

struct page_asset {
    const char *path, *type; /* of the request; of its answer */
    const unsigned char *bytes;
    size_t n;
};

extern const struct page_asset page_assets[]; /* the last one's path is NULL */

#endif
