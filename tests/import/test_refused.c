/* test_refused - foreign networks that are refused, and the words of it: operators that we have
 * not, samples that would depend on each other, memory that is shared with a changed tensor, and
 * files that no exporter writes. */
#include "../test.h"

#include <string.h>

#include "text_network.h"

static struct err refused_err;

/* Lower the text for 3 samples, which must fail with these words. */
static void expect_refused(const char *text, const char *why)
{
    int out[1];

    assert_null(text_lower(text, 3, 1, out, &refused_err));
    if (!strstr(refused_err.msg, why))
        fail_msg("\"%s\", want \"%s\"", refused_err.msg, why);
}

/* The values of networks that mix samples. */
#define MIXED                                                                           \
    "value x F32 [2,4]\nvalue v F32 [2,4]\nvalue s F32 []\nvalue t F32 [4,2]\n"         \
    "value q F32 [4,4]\nvalue n F32 [2,2]\nvalue u F32 [1,2,4]\nvalue u2 F32 [1,2,4]\n" \
    "input x x\n"

/* Whole numbers, and indices of which i turns the batch round. */
#define WHOLE                                                                      \
    "tensor i b I64 0 [2,1] = 1 0\nvalue i I64 [2,1] of i\n"                       \
    "tensor j b I64 0 [1,4] = 0 1 2 3\nvalue j I64 [1,4] of j\n"                   \
    "value x I32 [2,4]\nvalue v I64 [2,4]\nvalue w I64 [2,4]\nvalue c I64 [2,4]\n" \
    "value b BOOL [2,4]\nvalue r BOOL [2,4]\ninput x x\n"

#define DONE_X "input x x\noutput y v\n"
/* Of 5 places, with a kernel of 3. */
#define TRANSPOSED                                                              \
    "tensor w p F32 1 [2,3,3]\nvalue w F32 [2,3,3] of w\nvalue x F32 [2,2,5]\n" \
    "value v F32 [2,3,7]\nnode conv_transpose1d.default - input=vx weight=vw bias=n "

/* Networks that cannot be trained as they stand. */
static const struct {
    const char *text, *why;
} refused[] = {
    {"value x F32 [2,4]\nvalue v F32 [4,2]\nvalue r F32 [2,4]\nvalue s F32 [4,2]\n"
     "node reshape.default - self=vx shape=I4,2 -> v\nnode relu_.default - self=vx -> r\n"
     "node exp.default m self=vv -> s\ninput x x\noutput y s\n",
     "node s (exp.default) in m: it reads v, which shares its memory"},
    {"value x F32 [2,4]\nvalue v F32 [1,4]\n"
     "node slice.Tensor - self=vx dim=i0 start=i0 end=i1 -> v\ninput x x\noutput y v\n",
     "the network depends on the batch of its export, 2"},
    {"value x F32 [2,4]\nvalue v F32 [2,4]\nnode foo.default - self=vx -> v\ninput x x\n"
     "output y v\n",
     "node v (foo.default) in the network itself: this operator is not supported"},
    {"value x F32 [2,4]\nvalue v F32 [4]\nnode mean.dim - self=vx dim=I0 -> v\ninput x x\n"
     "output y v\n",
     "it reduces dimension 0, the batch"},
    {MIXED "node softmax.int - self=vx dim=i0 -> v\noutput y v\n",
     "(softmax.int) in the network itself: it normalises dimension 0, the batch"},
    {MIXED "node cumsum.default - self=vx dim=i0 -> v\noutput y v\n",
     "it scans dimension 0, the batch"},
    {MIXED "node mean.default - self=vx -> s\nnode sub.Tensor - self=vx other=vs -> v\n"
           "output y v\n",
     "node v (sub.Tensor) in the network itself: it joins samples with a number that was "
     "computed from all of them"},
    {MIXED "node permute.default - self=vx dims=I1,0 -> t\n"
           "node matmul.default - self=vt other=vx -> q\n"
           "node matmul.default - self=vx other=vq -> v\noutput y v\n",
     "node q (matmul.default) in the network itself: it sums over dimension 1, the batch"},
    {MIXED "node permute.default - self=vx dims=I1,0 -> t\n"
           "node mm.default - self=vx mat2=vt -> n\noutput y n\n",
     "has the batch in 2 dimensions"},
    {MIXED "node linear.default - input=vx weight=vx -> n\noutput y n\n",
     "it has weights with dimension 0, the batch"},
    {MIXED "node einsum.default - equation=tbi,bj->ij tensors=Vx,x -> q\noutput y q\n",
     "it sums over dimension 0, the batch"},
    {MIXED "node einsum.default - equation=tbi->i tensors=Vx -> v\noutput y v\n",
     "it sums over dimension 0, the batch"},
    {MIXED "node einsum.default - equation=tbi,ci,ci->i tensors=Vx,x,x -> v\noutput y v\n",
     "it sums over dimension 0, the batch"},
    {MIXED "node einsum.default - equation=tii->i tensors=Vx -> v\noutput y v\n",
     "it takes the diagonal of dimension 0, the batch"},
    {MIXED "node einsum.default - equation=tbi->ic tensors=Vx -> v\noutput y v\n",
     "and a result of their letters"},
    {"value x F32 [2,3,4]\nvalue v F32 [2]\n"
     "node einsum.default - equation=tbii->b tensors=Vx -> v\ninput x x\noutput y v\n",
     "letter i is 3 and 4 in one operand, want 1 or more, and the same"},
    {"value x F32 [2,3,3]\nvalue v F32 [2,2]\n"
     "node diagonal.default - self=vx offset=i1 dim1=i1 dim2=i2 -> v\ninput x x\noutput y v\n",
     "its offset is 1, want 0"},
    {MIXED "node einsum.default - equation=tbi,cj->bc tensors=Vx,x -> n\noutput y n\n",
     "has the batch in 2 dimensions"},
    {MIXED "node layer_norm.default - input=vx normalized_shape=I2,4 -> v\noutput y v\n",
     "it normalises dimension 0, the batch"},
    {MIXED "node unsqueeze.default - self=vx dim=i0 -> u\n"
           "node scaled_dot_product_attention.default - query=vu key=vu value=vu -> u2\n"
           "output y u2\n",
     "it combines dimension 2, the batch"},
    {"tensor m b F32 0 [4]\nvalue m F32 [4] of m\nvalue x F32 [2,4]\nvalue c F32 [4]\n"
     "node copy_.default - self=vm src=vx -> c\ninput x x\noutput y x\n",
     "it changes m, a buffer, in place"},
    {MIXED "node index_select.default - self=vx dim=i0 index=vx -> v\noutput y v\n",
     "it takes elements of dimension 0, the batch"},
    {WHOLE "node add.Tensor - self=vx other=i1 -> v\noutput y v\n",
     "it computes with whole numbers of the samples, whose result could leave 31 bits"},
    {WHOLE "node cumsum.default - self=vx dim=i1 -> v\noutput y v\n",
     "it adds up whole numbers of the samples, whose sum could leave 31 bits"},
    {WHOLE "node ne.Scalar - self=vx other=i0 -> b\nnode to.dtype - self=vb -> c\n"
           "node mul.Tensor - self=vc other=i1073741824 -> w\n"
           "node mul.Tensor - self=vw other=i2 -> v\noutput y v\n",
     "its whole numbers are from 0 to 2147483648, want -2147483648 to 2147483647"},
    {WHOLE "value k U8 [2,4]\nnode ne.Scalar - self=vx other=i0 -> b\n"
           "node add.Tensor - self=vb other=i255 -> k\noutput y k\n",
     "its whole numbers are from 255 to 256, want 0 to 255"},
    {WHOLE "node ne.Scalar - self=vx other=i0 -> b\n"
           "node index.Tensor - self=vb indices=Vi,j -> r\noutput y r\n",
     "it picks elements of dimension 0, the batch"},
    {"tensor e p F32 1 [3,4]\nvalue e F32 [3,4] of e\ntensor i b I64 0 [2] = 0 3\n"
     "value i I64 [2] of i\nvalue x F32 [2,4]\nvalue y F32 [2,4]\n"
     "node embedding.default - weight=ve indices=vi -> y\ninput x x\noutput y y\n",
     "index 3 of an extent of 3"},
    {MIXED "node detach_.default - self=vx -> v\noutput y v\n",
     "it cuts the gradient of a tensor in place"},
    {MIXED "node roll.default - self=vx shifts=I1 dims=I0 -> v\noutput y v\n",
     "it rolls dimension 0, the batch"},
    {"tensor w p F32 1 [9,4]\nvalue w F32 [9,4] of w\nvalue x I32 [2,3]\n"
     "value y F32 [2,3,4]\nnode embedding.default - weight=vw indices=vx padding_idx=i-1 "
     "scale_grad_by_freq=f1 -> y\ninput x x\noutput y y\n",
     "scale_grad_by_freq divides gradients by the counts in a batch"},
    {"tensor w p F32 1 [9,4]\nvalue w F32 [9,4] of w\nvalue x I32 [2,3]\n"
     "value y F32 [2,3,4]\nnode embedding.default - weight=vw indices=vx padding_idx=i-1 "
     "scale_grad_by_freq=f0 sparse=f1 -> y\ninput x x\noutput y y\n",
     "want an embedding with sparse=False"},
    {MIXED "value k F32 [2,2]\nvalue i I64 [2,2]\n"
           "node topk.default - self=vx k=i5 dim=i1 -> k i\noutput y k\n",
     "it takes 5 elements of 4 in their order, want 1 to 128 of them"},
    {MIXED "value i I64 [4]\nnode argmax.default - self=vx dim=i0 -> i\noutput y i\n",
     "it compares elements of dimension 0, the batch"},
    {MIXED "value i I64 []\nnode argmax.default - self=vx -> i\noutput y i\n",
     "it has no dim, and would choose among all samples; want a dim"},
    {WHOLE "value k I64 [2,1]\nnode topk.default - self=vx k=i1 dim=i1 -> v k\noutput y v\n",
     "it orders whole numbers of the samples; make them real numbers first"},
    {WHOLE "node scatter.value - self=vx dim=i0 index=vx value=i1 -> v\noutput y v\n",
     "it puts elements along dimension 0, the batch"},
    {MIXED "value e F32 [2]\nvalue b F32 [2]\nnode empty.memory_format - size=I2 -> e\n"
           "node bernoulli_.float - self=ve p=r0.5 -> b\n"
           "node mul.Tensor - self=vx other=vb -> v\noutput y v\n",
     "random numbers of 1 dimensions for the samples meet a tensor of 2"},
    {MIXED "value e F32 [2,1]\nnode empty.memory_format - size=I2,1 -> e\n"
           "node mul.Tensor - self=vx other=ve -> v\noutput y v\n",
     "it multiplies or divides random numbers before they are 0 or 1"},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        expect_refused(refused[i].text, refused[i].why);
}

/* Networks of one input x [2,4], and their tensors. */
#define OWN                                                                                       \
    "tensor b b F32 0 [4] = 1 2 3 4\nvalue b F32 [4] of b\n"                                      \
    "tensor w p F32 1 [4]\nvalue w F32 [4] of w\n"                                                \
    "tensor t b F32 0 [4] = 1 2 3 4\nvalue t F32 [4] of t\ntied t w\n"                            \
    "tensor c c I64 0 [2] = -1 4\nvalue c I64 [2] of c\n"                                         \
    "tensor n.num_batches_tracked b I64 0 [] = 0\nvalue n I64 [] of n.num_batches_tracked\n"      \
    "value x F32 [2,4]\nvalue f BOOL [2,4]\nvalue m I64 []\nvalue h F32 [4]\nvalue y F32 [2,4]\n" \
    "value u F32 [2,2]\nvalue v F32 [2,2]\nvalue z F32 [2,2]\nvalue i I64 [2,4]\n"                \
    "value j I64 [2,4]\nvalue q F32 [2]\nvalue k F32 [4]\nvalue l F32 [2]\ninput x x\n"

/* Values that share memory with a changed tensor are right or refused by name. */
static void test_shared(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {OWN "node mul_.Tensor - self=vb other=r0.9 -> h\noutput y x\n",
         "it changes b, a buffer, in place"},
        {OWN "node alias.default - self=vw -> h\nnode zero_.default - self=vh -> k\noutput y x\n",
         "it changes w, a parameter, in place"},
        {OWN "node add_.Tensor - self=vn other=i1 -> m\noutput y x\n",
         "it changes n.num_batches_tracked, a buffer, in place"},
        {OWN "node mul.Tensor - self=vx other=vt -> y\noutput y y\n",
         "it reads t, a buffer in the memory of a trained parameter"},
        {OWN "node contiguous.default - self=vx -> y\n"
             "node slice.Tensor - self=vx dim=i1 start=i0 end=i2 -> u\n"
             "node zero_.default - self=vu -> z\noutput y y\n",
         "it reads y, which shares its memory"},
        {OWN "node gt.Scalar - self=vx other=r0.0 -> f\nnode to.dtype - self=vf dtype=dI64 -> i\n"
             "node slice.Tensor - self=vi dim=i1 start=i0 end=i2 -> p\n"
             "node copy_.default - self=vp src=vp -> p2\noutput y x\n",
         "it writes into whole numbers"},
        {OWN "node expand.default - self=vx size=I2,4 -> y\nnode index_put_.default - self=vy "
             "indices=Vc values=vx accumulate=f0 -> y2\noutput y y2\n",
         "it writes along dimension 0, the batch"},
        {OWN "node gt.Scalar - self=vx other=r0.0 -> f\nnode to.dtype - self=vf dtype=dI64 -> i\n"
             "node bitwise_not.default - self=vi -> j\noutput y j\n",
         "it works on the bits of I64"},
        {OWN "node arange.default - end=i2 -> r\nnode unsqueeze.default - self=vr dim=i1 -> r1\n"
             "node mul.Tensor - self=vx other=vr1 -> y\noutput y y\n",
         "the network depends on the batch of its export, 2"},
        {OWN "node index.Tensor - self=vw indices=Vc -> q\noutput y q\n",
         "index 4 of an extent of 4"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[4096];

        snprintf(text, sizeof text,
                 "value r I64 [2]\nvalue r1 I64 [2,1]\nvalue p I64 [2,2]\nvalue p2 I64 [2,2]\n"
                 "value y2 F32 [2,4]\n%s",
                 bad[i].text);
        expect_refused(text, bad[i].why);
    }
}

/* d is h without its gradient. */
#define HIDDEN                                                                     \
    "value x F32 [2,4]\nvalue h F32 [2,4]\nvalue d F32 [2,4]\nvalue r F32 [2,4]\n" \
    "value v F32 [2,4]\nnode tanh.default - self=vx -> h\nnode detach.default - self=vh -> d\n"
#define DONE "input x x\noutput y v\n"

/* A GRU with parameters hh, of `layers` layers. */
#define GRU(hh, x, layers)                                                                     \
    "tensor i p F32 1 [6,3]\nvalue i F32 [6,3] of i\ntensor h p F32 1 " hh "\nvalue h F32 " hh \
    " of h\nvalue x F32 " x "\nvalue s F32 [1,2,2]\nvalue v F32 [2,3,2]\n"                     \
    "node zeros.default - size=I1,2,2 -> s\nnode gru.input - input=vx hx=vs params=Vi,h "      \
    "has_biases=f0 num_layers=" layers " dropout=r0 train=f1 bidirectional=f0 batch_first=f1 " \
    "-> v\ninput x x\noutput y v\n"

/* Only hostile files have these, or wrong builders make them. */
static const struct {
    const char *text, *why;
} bad_files[] = {
    /* what the file says of an output is not what comes out */
    {"value x F32 [2,4]\nvalue v F32 [2,5]\nnode relu.default m self=vx -> v\ninput x x\n"
     "output y v\n",
     "node v (relu.default) in m: its output v comes out as [2,4], but was [2,5] at export"},
    {"value x F32 [2,4]\nvalue v F32 [2,2,2]\nnode relu.default m self=vx -> v\ninput x x\n"
     "output y v\n",
     "comes out as [2,4], but was [2,2,2]"},
    {"value x I32 [2,4]\nvalue v F32 [2,4]\nnode alias.default - self=vx -> v\ninput x x\n"
     "output y v\n",
     "its output v comes out as I32, but was F32 at export"},
    {"value x F32 [2,4]\nvalue v F32 [4,2]\nnode relu_.default - self=vx -> v\ninput x x\n"
     "output y v\n",
     "it changes x in place, but its output v has another shape"},
    /* an output that builders read is not there */
    {"value x F32 [2,4]\nnode view.default - self=vx size=I2,4 -> -\ninput x x\noutput y x\n",
     "it has no output"},
    {"value x F32 [2,4]\nnode slice.Tensor - self=vx dim=i1 end=i2\ninput x x\noutput y x\n",
     "it has no output"},
    /* numbers and ranks that no export has */
    {"value x F32 [2,4]\nvalue v F32 [2,4]\n"
     "node layer_norm.default - input=vx normalized_shape=I5 -> v\ninput x x\noutput y v\n",
     "it normalises 5 elements of dimension 1, which has 4"},
    {"value x F32 [2,4]\nvalue v F32 [2,4]\nnode layer_norm.default - input=vx "
     "normalized_shape=I2,4 -> v\ninput x x\noutput y v\n",
     "it normalises dimension 0, the batch"},
    {"value x F32 [2,4]\nvalue v F32 [2,4]\nnode rms_norm.default - input=vx "
     "normalized_shape=I4611686018427387904 -> v\ninput x x\noutput y v\n",
     "normalized_shape is 4611686018427387904, want -2147483647 to 2147483647"},
    {"value x F32 [2,4]\nvalue v F32 [2,1000000004]\nnode pad.default - self=vx "
     "pad=I0,1000000000 mode=treplicate -> v\ninput x x\noutput y v\n",
     "a constant of 1000000004 * 1 elements"},
    {"value x F32 [2,4]\nvalue v F32 [2,8]\n"
     "node pad.default - self=vx pad=I0,4 mode=tmirror -> v\ninput x x\noutput y v\n",
     "its mode is not constant"},
    {"value x F32 [0,4]\nvalue v F32 [0,4]\nnode relu.default - self=vx -> v\ninput x x\n"
     "output y v\n",
     "input x of the network was exported with a batch of 0, which cannot be told"},
    {"value x F32 [1,4]\nvalue v F32 [1,4]\nnode relu.default - self=vx -> v\ninput x x\n"
     "output y v\n",
     "a batch of 1, which cannot be told from other sizes: export it with 2 samples or more"},
    {"value x F32 [2,4]\nvalue v F32 [2]\nvalue w F32 []\nnode mean.default - self=vx -> w\n"
     "node matmul.default - self=vx other=vw -> v\ninput x x\noutput y v\n",
     "its operands have 2 and 0 dimensions, want 1 and 1 or more"},
    {"value x F32 [2,4]\nvalue v F32 [2]\nnode bmm.default - self=vx mat2=vx -> v\ninput x x\n"
     "output y v\n",
     "its operands have 2 and 2 dimensions, want 3 and 3"},
    {"value x F32 [2,4]\nvalue v F32 [2]\nvalue w F32 []\nnode mean.default - self=vx -> w\n"
     "node addmm.default - self=vx mat1=vx mat2=vw -> v\ninput x x\noutput y v\n",
     "its operands have 2 and 0 dimensions, want 2 and 2"},
    {"value x F32 [2,4]\nvalue v F32 [2,4]\nnode einsum.default - equation=tabc,ad->ac "
     "tensors=Vx,x -> v\ninput x x\noutput y v\n",
     "its equation is \"abc,ad->ac\" for 2 tensors, the first one of 2 dimensions; want a letter"},
    {"value x F32 [2,4]\nvalue v F32 [2]\nnode select.int - self=vx dim=i1 index=i4 -> v\n"
     "input x x\noutput y v\n",
     "index is 4 of 4"},
    {"value x F32 [2,4]\nvalue v F32 [2,4]\nnode squeeze.dim - self=vx dim=i9 -> v\n"
     "input x x\noutput y v\n",
     "dim is 9 of 2"},
    {"tensor w p F32 1 [4,2,3]\nvalue w F32 [4,2,3] of w\nvalue x F32 [2,2,5]\n"
     "value v F32 [2,4,5]\nnode conv1d.default - input=vx weight=vw bias=n stride=I1 "
     "padding=I2147483647 -> v\ninput x x\noutput y v\n",
     "padding is 2147483647, want 0 to 1048576"},
    {"value x F32 [2,3,4,4]\nvalue v F32 [2,3,4,4]\n"
     "node upsample_nearest2d.vec - output_size=I4,4 -> v\ninput x x\noutput y v\n",
     "images [N,C,H,W]"},
    {"value x F32 [2,4]\nvalue v F32 [2,4]\nnode add.Tensor - self=vx -> v\ninput x x\n"
     "output y v\n",
     "it lacks an operand"},
    {"tensor e p F32 1 [0,4]\nvalue e F32 [0,4] of e\nvalue x I32 [2]\nvalue v F32 [2,4]\n"
     "node embedding.default - weight=ve indices=vx -> v\ninput x x\noutput y v\n",
     "its table has no rows"},
    {"value x F32 [2,4]\nvalue v F32 [2,4]\nnode clamp.default - self=vx min=r2 max=r1 -> v\n"
     "input x x\noutput y v\n",
     "its lower limit 2 is above the upper one, 1"},
    {"value x F32 [2,4]\nvalue v F32 [2,4]\nnode elu.default - self=vx input_scale=r2 -> v\n"
     "input x x\noutput y v\n",
     "input_scale is 2, want 1"},
    {"value x F32 [2,4]\nvalue v BOOL [2]\nnode any.dim - self=vx dim=i1 -> v\n"
     "input x x\noutput y v\n",
     "it asks for any, or all, of F32"},
    {"value x F32 [2,2]\nvalue v F32 [2,2]\nnode as_strided.default - self=vx size=I2,2 "
     "stride=I1,2 -> v\ninput x x\noutput y v\n",
     "it reads a tensor's memory by strides"},
    /* operators that are several of ours */
    {"tensor w p F32 1 [4,2,3]\nvalue w F32 [4,2,3] of w\nvalue x F32 [2,2,5]\n"
     "value v F32 [2,2,7]\nnode conv_transpose1d.default - input=vx weight=vw -> v\n"
     "input x x\noutput y v\n",
     "its input has 2 channels, and its weight is for 4"},
    {TRANSPOSED "stride=I1 padding=I0 output_padding=I0 groups=i3 -> v\n" DONE_X,
     "it has 3 groups of 2 channels"},
    {TRANSPOSED "stride=I0 -> v\n" DONE_X, "stride is 0, want 1 to 65536"},
    {TRANSPOSED "stride=I1 padding=I9 -> v\n" DONE_X, "it makes no element of 5"},
    {TRANSPOSED "stride=I65536 -> v\n" DONE_X, "its output v comes out as [2,3,262147]"},
    {"value x F32 [2,6,4,4]\nvalue v F32 [2,2,8,8]\n"
     "node pixel_shuffle.default - self=vx upscale_factor=i2 -> v\n" DONE_X,
     "its factor is 2, for 6 channels of 4 x 4"},
    {"value x F32 [2,6,4,4]\nvalue v F32 [2,54,2,2]\n"
     "node pixel_unshuffle.default - self=vx downscale_factor=i3 -> v\n" DONE_X,
     "its factor is 3, for 6 channels of 4 x 4"},
    {"value x F32 [2,6,4,4]\nvalue v F32 [2,6,4,4]\n"
     "node channel_shuffle.default - self=vx groups=i4 -> v\n" DONE_X,
     "it has 4 groups of 6 channels"},
    {"value x F32 [2,3,4]\nvalue v F32 [2,4,3]\n"
     "node movedim.intlist - self=vx source=I1,1 destination=I1,2 -> v\n" DONE_X,
     "its source has 1, want each of 3 dimensions at most once"},
    {"value x F32 [2,3,4]\nvalue v F32 [2,4,3]\n"
     "node movedim.intlist - self=vx source=I1 destination=I1,2 -> v\n" DONE_X,
     "it moves 1 dimensions to 2 places"},
    {"value x F32 [2,4]\nvalue v F32 [2,4]\nnode flip.default - self=vx dims=I0 -> v\n" DONE_X,
     "it turns round dimension 0, the batch"},
    {"value x F32 [2,4]\nvalue v F32 [2,4]\nnode tril.default - self=vx -> v\n" DONE_X,
     "it cuts dimension 0, the batch"},
    {"value x F32 [2,4]\nvalue v F32 [16]\nnode repeat_interleave.self_int - self=vx repeats=i2 "
     "-> v\n" DONE_X,
     "it has no dim, and would join all samples"},
    {"value x F32 [2,4]\nvalue v F32 [2,4]\nnode pow.Scalar - self=r-2 exponent=vx -> v\n" DONE_X,
     "its base is -2, want a positive number"},
    {"value x F32 [2,4]\nvalue v F32 [3,4]\nnode randn.default - size=I3,4 -> v\n" DONE_X,
     "random numbers whose first dimension is not the batch, 2"},
    {"value x F32 [2,4]\nvalue t F32 [4,2]\nvalue v F32 [4,2]\n"
     "node t.default - self=vx -> t\nnode feature_dropout.default - input=vt p=r0.5 train=f1 "
     "-> v\n" DONE_X,
     "it drops channels of a tensor whose first dimension is not the batch"},
    {"value x F32 [2,1]\nvalue v F32 [2]\nnode var.dim - self=vx dim=I1 -> v\n" DONE_X,
     "it divides by 1 elements less 1, want more elements or unbiased=False"},
    {"value x F32 [2,4]\nvalue v F32 [4]\nnode std.dim - self=vx dim=I0 unbiased=f0 -> v\n" DONE_X,
     "it reduces dimension 0, the batch"},
    {"value x F32 [2,4]\nvalue v F32 [4]\nnode max.dim - self=vx dim=i0 -> v\n" DONE_X,
     "it reduces dimension 0, the batch"},
    {"value x F32 [2,4]\nvalue v F32 [2,4]\nnode _weight_norm.default - v=vx g=vx -> v\n" DONE_X,
     "it normalises dimension 0, the batch"},
    {"value x F32 [2,5]\nvalue v F32 [2,2]\nnode glu.default - self=vx dim=i1 -> v\n" DONE_X,
     "it halves dimension 1 of 5 elements"},
    {"value x F32 [2,4]\nvalue v F32 [2,7]\nnode repeat.default - self=vx repeats=I1,2 -> "
     "v\n" DONE_X,
     "it repeats 4 elements of dimension 1, and makes 7"},
    {"value x F32 [2,4]\nvalue v F32 [6,4]\nnode repeat.default - self=vx repeats=I3,1 -> "
     "v\n" DONE_X,
     "it repeats dimension 0, the batch"},
    {"value x F32 [2,4]\nvalue v F32 [2,4]\nnode batch_norm.default - input=vx training=f1 -> "
     "v\n" DONE_X,
     "want track_running_stats=True"},
    {"tensor m b F32 0 [4]\nvalue m F32 [4] of m\nvalue x F32 [2,4,3]\nvalue v F32 [2,4,3]\n"
     "node instance_norm.default - input=vx weight=n bias=n running_mean=vm -> v\n" DONE_X,
     "want track_running_stats=False"},
    /* a GRU of 2 units whose parameters are not as its arguments say */
    {GRU("[6,3]", "[2,3,3]", "i1"), "w is [6,3], want [9,3]"},
    {GRU("[6,2]", "[2,3,3]", "i4611686018427387904"), "want -2147483647 to 2147483647"},
    {GRU("[6,2]", "[2,3,3]", "i2147483647"), "it has 2 parameters in 2147483647 layers, want"},
    {GRU("[6,2]", "[2,3]", "i1"), "its input has 2 dimensions, want 3"},
    {GRU("[6]", "[2,3,3]", "i1"), "weight_hh is [6], want a matrix"},
    /* what an operator in place changed */
    {"value x F32 [2,4]\nvalue v F32 [2,2,2]\nvalue r F32 [2,4]\n"
     "node reshape.default - self=vx shape=I2,2,2 -> v\nnode relu_.default - self=vx -> r\n"
     "input x x\noutput y v\n",
     "it reads v, which shares its memory"},
    {HIDDEN "node relu_.default - self=vh -> r\nnode add.Tensor - self=vd other=vr -> v\n" DONE,
     "it reads d, which shares its memory"},
    {HIDDEN "node relu_.default - self=vd -> r\nnode add.Tensor - self=vh other=vr -> v\n" DONE,
     "it reads h, which shares its memory"},
};

static void test_bad_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_files / sizeof *bad_files; i++)
        expect_refused(bad_files[i].text, bad_files[i].why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_bad_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
