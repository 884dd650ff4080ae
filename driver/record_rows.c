/* The rows that the loop has taken since the last event of another kind.  A REPORT_STEP brings them
 * along (train/engine.h), and its EVENT_PROGRESS ends the wait. */
#include "driver/record.h"

#include "base/alloc.h"

enum { RECORD_FIRST_ROWS = 64, RECORD_MOST_ROWS = 4096 };

void record_hold_row(struct record *r, const struct metrics_row *row)
{
    if (!r->metrics)
        return;
    if (r->n_rows == RECORD_MOST_ROWS)
        record_hand_rows(r);
    if (r->n_rows == r->row_room) {
        r->row_room = r->row_room ? 2 * r->row_room : RECORD_FIRST_ROWS;
        r->row = xrealloc(r->row, (size_t)r->row_room * sizeof *r->row);
    }
    r->row[r->n_rows++] = *row;
}

void record_hand_rows(struct record *r)
{
    if (r->n_rows == 0)
        return;
    metrics_add(r->metrics, r->row, r->n_rows);
    if (r->board)
        board_rows(r->board, r->row, r->n_rows);
    r->n_rows = 0;
}
