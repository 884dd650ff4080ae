/* The rows that the loop has taken since the last event of another kind.  A REPORT_STEP brings them
 * along (train/engine.h), and its EVENT_PROGRESS ends the wait. */
#include "driver/record.h"

#include "base/alloc.h"

enum { RECORD_FIRST_ROWS = 64, RECORD_MOST_ROWS = 4096 };

/* Room for one more of n rows, each of `size` bytes, in `rows`; returns where they lie now. */
static void *record_room(void *rows, int n, int *room, size_t size)
{
    if (n < *room)
        return rows;
    *room = *room ? 2 * *room : RECORD_FIRST_ROWS;
    return xrealloc(rows, (size_t)*room * size);
}

void record_hold_row(struct record *r, const struct metrics_row *row)
{
    if (!r->metrics)
        return;
    if (r->n_rows == RECORD_MOST_ROWS)
        record_hand_rows(r);
    r->row = record_room(r->row, r->n_rows, &r->row_room, sizeof *row);
    r->row[r->n_rows++] = *row;
}

void record_hold_hashes(struct record *r, const struct hashes_row *row)
{
    if (!r->hashes)
        return;
    if (r->n_hash_rows == RECORD_MOST_ROWS)
        record_hand_rows(r);
    r->hash_row = record_room(r->hash_row, r->n_hash_rows, &r->hash_row_room, sizeof *row);
    r->hash_row[r->n_hash_rows++] = *row;
}

void record_hand_rows(struct record *r)
{
    if (r->n_rows > 0) {
        series_add(r->metrics, r->row, r->n_rows);
        if (r->board)
            board_rows(r->board, r->row, r->n_rows);
    }
    if (r->n_hash_rows > 0)
        series_add(r->hashes, r->hash_row, r->n_hash_rows);
    r->n_rows = r->n_hash_rows = 0;
}
