/* seal - ends a step: writes its results where the host reads them, and tells the next step whether
 * this one was clean.
 *
 * seal  clean F32 [1], results F32 [SEALED_SLOTS*SEALED_LEN], check F64 [2],
 *       control F32 [CONTROL_LEN] (reduced), scalars, metrics, waits I64 [2],
 *       scaler? F32 [SCALER_LEN] (already the next step's), kept? I64 [KEPT_LEN]
 *       -> clean, results, both updated in place
 *   results[scalars.slot*SEALED_LEN + i] = seal_value(i) of op/seal.h, for i < SEALED_LEN.
 *   clean = scalars.stamp if the step is applied (control_applies) and no rank requested anything
 *   (control_is_quiet); else 0, which is no step's stamp.
 *
 * So a step may be queued before its predecessor's result is known, on the assumption that the
 * predecessor is clean, with scalars.after = the predecessor's stamp.  If the predecessor was not
 * clean, control_pack marks the step as void, and all ranks, which read the same vector, leave the
 * state as it was.  `clean` lies in struct step_scalars. */
#include "op/seal.h"

#include "op/infer.h"

static int seal_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                      struct err *err)
{
    int rc;

    if ((rc = op_want_shape(g, n, SEAL_CLEAN, SHAPE(1), err)) < 0 ||
        (rc = op_want_shape(g, n, SEAL_RESULTS, SHAPE(SEALED_SLOTS * SEALED_LEN), err)) < 0 ||
        (rc = op_want(g, n, SEAL_CHECK, DTYPE_F64, 1, err)) < 0 ||
        (rc = op_want_shape(g, n, SEAL_CONTROL, SHAPE(CONTROL_LEN), err)) < 0 ||
        (rc = op_want(g, n, SEAL_WAITS, DTYPE_I64, 1, err)) < 0 ||
        (rc = op_want_shape(g, n, SEAL_SCALER, SHAPE(SCALER_LEN), err)) < 0 ||
        (rc = op_want_kept(g, n, SEAL_KEPT, err)) < 0)
        return rc;
    op_out(out, SEAL_NEW_CLEAN, DTYPE_F32, SHAPE(1));
    op_out(out, SEAL_NEW_RESULTS, DTYPE_F32, SHAPE(SEALED_SLOTS * SEALED_LEN));
    return 0;
}

const struct op_def op_seal = {
    .infer = seal_infer,
    OP_SIGNATURE(seal),
};
