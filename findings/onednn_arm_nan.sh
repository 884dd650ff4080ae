#!/usr/bin/env bash
# onednn_arm_nan.sh - what oneDNN's activations make of a NaN, on arm64 and on x86-64.
#
# A trainer learns by a NaN in the loss that training has diverged.  oneDNN applies an activation by
# itself, or right behind a product (a post-op).  Its manual gives one formula for each.
#
# Guess: the activation of a NaN is a NaN.  At least it is the same on all processors, alone and
#        behind a product.
# Seen:  oneDNN 2.6.3 (Debian 12's libdnnl2 2.6.3-1): neither.  On arm64 a sigmoid behind a product
#        makes 0 of it, and so does a sigmoid by itself, unless there is SVE of 512 bits (Fujitsu's
#        A64FX; Grace and Graviton have less, or none): there that one keeps it, and leaky_relu
#        makes it 0.  tanh, both gelus and swish keep it.  relu keeps it as plain C, and makes it 0
#        by SVE.  On x86-64 with AVX2 no other than relu makes it 0.  So a network that ends in a
#        sigmoid may have finite losses after it has diverged on arm64, and not on x86-64.
#        On arm64 dnnl_get_effective_cpu_isa() gives 0x1, or 0x1f with SVE of 512 bits: the public
#        names of these bits are SSE4.1, and AVX2 and AVX-512 of the Xeon Phi.
#
# The packages of arm64 are unpacked, not installed.  The script needs a cross compiler and qemu
# (gcc-aarch64-linux-gnu, qemu-user-static).
# Exit status: 0 if that is seen; 1 if not; 77 if the packages cannot be had.
set -eu
for tool in aarch64-linux-gnu-gcc qemu-aarch64-static; do
    command -v $tool >/dev/null || { echo "no $tool here"; exit 77; }
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >program.c <<'C'
#include <math.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 5, IN = 7, OUT = 9 };

static dnnl_engine_t engine;
static dnnl_stream_t stream;

static void must(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return;
    fprintf(stderr, "%s: status %d\n", what, (int)status);
    exit(1);
}

static dnnl_memory_desc_t matrix(int64_t rows, int64_t columns)
{
    dnnl_memory_desc_t md;

    must(dnnl_memory_desc_init_by_tag(&md, 2, (dnnl_dims_t){rows, columns}, dnnl_f32, dnnl_ab),
         "describe");
    return md;
}

static dnnl_memory_t memory(const dnnl_memory_desc_t *md, float *at)
{
    dnnl_memory_t m;

    must(dnnl_memory_create(&m, md, engine, at), "memory");
    return m;
}

/* Prints what y is, and the implementation's name. */
static void run(dnnl_primitive_desc_t pd, dnnl_exec_arg_t *args, int n, const float *y)
{
    dnnl_primitive_t p;
    const char *name;

    must(dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name), "ask for the name");
    must(dnnl_primitive_create(&p, pd), "primitive");
    must(dnnl_primitive_execute(p, stream, n, args), "execute");
    must(dnnl_stream_wait(stream), "wait");
    printf(" %s by %s", isnan(*y) ? "NaN" : *y == 0 ? "0" : "another", name);
}

static void alone(dnnl_alg_kind_t alg, float alpha)
{
    dnnl_memory_desc_t md = matrix(ROWS, IN);
    float x[ROWS * IN], y[ROWS * IN];
    dnnl_eltwise_desc_t d;
    dnnl_primitive_desc_t pd;

    for (int i = 0; i < ROWS * IN; i++)
        x[i] = i == 2 * IN ? NAN : 1;
    must(dnnl_eltwise_forward_desc_init(&d, dnnl_forward_inference, alg, &md, alpha, 0), "eltwise");
    must(dnnl_primitive_desc_create(&pd, &d, NULL, engine, NULL), "eltwise");
    run(pd, (dnnl_exec_arg_t[]){{DNNL_ARG_SRC, memory(&md, x)}, {DNNL_ARG_DST, memory(&md, y)}}, 2,
        y + 2 * IN);
}

static void behind_product(dnnl_alg_kind_t alg, float alpha)
{
    const dnnl_memory_desc_t x_md = matrix(ROWS, IN), w_md = matrix(OUT, IN),
                             y_md = matrix(ROWS, OUT);
    float x[ROWS * IN], w[OUT * IN], y[ROWS * OUT];
    dnnl_inner_product_desc_t d;
    dnnl_post_ops_t ops;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd;

    for (int i = 0; i < ROWS * IN; i++)
        x[i] = i == 2 * IN ? NAN : 1;
    for (int i = 0; i < OUT * IN; i++)
        w[i] = 1;
    must(dnnl_post_ops_create(&ops), "post-ops");
    must(dnnl_post_ops_append_eltwise(ops, 1, alg, alpha, 0), "post-op");
    must(dnnl_primitive_attr_create(&attr), "attributes");
    must(dnnl_primitive_attr_set_post_ops(attr, ops), "attributes");
    must(dnnl_inner_product_forward_desc_init(&d, dnnl_forward_inference, &x_md, &w_md, NULL,
                                              &y_md),
         "product");
    must(dnnl_primitive_desc_create(&pd, &d, attr, engine, NULL), "product");
    run(pd,
        (dnnl_exec_arg_t[]){{DNNL_ARG_SRC, memory(&x_md, x)},
                            {DNNL_ARG_WEIGHTS, memory(&w_md, w)},
                            {DNNL_ARG_DST, memory(&y_md, y)}},
        3, y + 2 * OUT);
}

int main(void)
{
    static const struct {
        const char *name;
        dnnl_alg_kind_t alg;
        float alpha;
    } rows[] = {
        {"tanh", dnnl_eltwise_tanh, 0},
        {"gelu_erf", dnnl_eltwise_gelu_erf, 0},
        {"gelu_tanh", dnnl_eltwise_gelu_tanh, 0},
        {"swish", dnnl_eltwise_swish, 1},
        {"logistic", dnnl_eltwise_logistic, 0},
        {"leaky_relu", dnnl_eltwise_relu, 0.01f},
        {"relu", dnnl_eltwise_relu, 0},
    };

    must(dnnl_engine_create(&engine, dnnl_cpu, 0), "engine");
    must(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "stream");
    printf("isa 0x%x\n", (unsigned)dnnl_get_effective_cpu_isa());
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        printf("%s", rows[i].name);
        alone(rows[i].alg, rows[i].alpha);
        behind_product(rows[i].alg, rows[i].alpha);
        printf("\n");
    }
    return 0;
}
C
fetch() # ARCHITECTURE: unpack its oneDNN, and all that this needs, into a folder of that name
{
    local action package want='libdnnl-dev=2.6.3-1 libdnnl2=2.6.3-1 libc6-dev'
    mkdir -p apt/lists/partial apt/cache/archives/partial "$1"
    : >apt/status
    for action in update "install --download-only -y $want"; do
        # shellcheck disable=SC2086 # several words
        apt-get -qq -o APT::Architecture="$1" -o APT::Architectures="$1" \
            -o APT::Install-Recommends=0 -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1 \
            -o Dir::State="$dir/apt" -o Dir::State::status="$dir/apt/status" \
            -o Dir::Cache="$dir/apt/cache" $action >log 2>&1 || { tail -n 1 log; exit 77; }
    done
    for package in apt/cache/archives/*.deb; do dpkg-deb -x "$package" "$1"; done
    rm -rf apt
}

fetch arm64
aarch64-linux-gnu-gcc -O1 --sysroot="$dir/arm64" program.c -o program -ldnnl -lm
qemu-aarch64-static --version | head -n 1

status=0
check() # NAME WANTED: the isa, and what each activation makes of NaN, alone and behind a product
{
    local seen
    echo "$1:"
    sed 's/^/    /' seen.txt
    seen=$(sed 's/ by [^ ]*//g' seen.txt | xargs)
    # shellcheck disable=SC2053 # a pattern is meant
    [[ $seen == $2 ]] || { echo "  want: $2" && status=1; }
}
look() # PROCESSOR WANTED
{
    QEMU_CPU=$1 qemu-aarch64-static -L "$dir/arm64" ./program >seen.txt
    check "$1" "$2"
}
same="tanh NaN NaN gelu_erf NaN NaN gelu_tanh NaN NaN swish NaN NaN"
look max "isa 0x1f $same logistic NaN 0 leaky_relu 0 NaN relu 0 NaN"
look max,sve-max-vq=2 "isa 0x1 $same logistic 0 0 leaky_relu NaN NaN relu NaN NaN"
look cortex-a76 "isa 0x1 $same logistic 0 0 leaky_relu NaN NaN relu NaN NaN"
if [ "$(uname -m)" = x86_64 ] && command -v cc >/dev/null; then
    fetch amd64
    cc -O1 --sysroot="$dir/amd64" program.c -o program_x86 -ldnnl -lm
    lib=lib/x86_64-linux-gnu
    amd64/lib64/ld-linux-x86-64.so.2 --library-path "amd64/usr/$lib:amd64/$lib" ./program_x86 \
        >seen.txt
    check x86-64 "isa 0x* $same logistic NaN NaN leaky_relu NaN NaN relu 0 0"
fi
exit $status
