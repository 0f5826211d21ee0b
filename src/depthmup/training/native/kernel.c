/* One residual MLP trained from start to end by one thread: forward, backward and optimizer.

   Letters: L layers, k matrices per branch, n width, B batch, O outputs. Strides: nS floats
   between rows of W and of everything batch-major, BS between rows of everything feature-major;
   both are multiples of the register length VL, so every row starts at a whole register.

   What makes it fast, and why each is exact:

   - Activations are feature-major, (n, B): the batch is the register's dimension. So a product
     needs no transposed or packed W (its entries are broadcast), and a mean over features is a
     sum of rows.
   - A product is cut into tiles of up to 6 rows by 4 registers that stay in registers for the
     whole sum (24 of AVX-512's 32; fewer columns where there are 16 registers).
   - The gradient of W never reaches memory: the tile that sums it over the batch ends with the
     optimizer's update of the same entries. It reads activations batch-major, from a transposed
     copy, which costs n B where the products cost n n B.
   - A layer's backward product uses W before that update: it precedes it panel by panel, a panel
     being as many columns of W as a tile has, so that the update finds W in the cache.
   - U is not trained, so U x is a table over the examples, made once per member.

   The order of every sum depends on sizes and register length alone: the same bits come out in
   every run on one kind of machine. Rows and columns of padding hold finite numbers that no sum
   over real entries reads: sums over the batch run to B, sums over features to n.

   The caller has checked every size, index and pointer; this file trusts them. It allocates
   nothing, and has no state of its own. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* ---- registers ---------------------------------------------------------------------------- */

#if defined(__AVX512F__)
#define VL 16
#elif defined(__AVX__)
#define VL 8
#else
#define VL 4
#endif

/* Rows and register columns of a tile: accumulators + one row of operands + one broadcast must
   fit. 6 x 4 needs 29 registers of 32, 6 x 2 needs 15 of 16. */
#define ROWS 6
#if defined(__AVX512F__) || defined(__aarch64__)
#define COLUMNS 4
#else
#define COLUMNS 2
#endif

/* Rows of the streamed operand per pass over a product: DEPTH x COLUMNS registers (16 KiB) stay
   in the first cache while all tiles of rows use them. */
#define DEPTH 64

typedef float V __attribute__((vector_size(4 * VL), may_alias));
typedef int32_t I __attribute__((vector_size(4 * VL), may_alias));

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define ROLLED _Pragma("GCC unroll 1")
#endif

INLINE V load(const float *p) { return *(const V *)p; }
INLINE void store(float *p, V v) { *(V *)p = v; }
INLINE V fill(float s) {
  V v;
  for (int i = 0; i < VL; i++) v[i] = s;
  return v;
}
INLINE V blend(I where, V yes, V no) { return (V)(((I)yes & where) | ((I)no & ~where)); }
INLINE V magnitude(V v) { return (V)((I)v & 0x7fffffff); }
INLINE V with_sign_of(V magnitude, V sign) {
  return (V)((I)magnitude | ((I)sign & INT32_MIN));
}

INLINE V root(V v) {
#if defined(__AVX512F__)
  return (V)_mm512_sqrt_ps((__m512)v);
#elif defined(__AVX__)
  return (V)_mm256_sqrt_ps((__m256)v);
#elif defined(__SSE__)
  return (V)_mm_sqrt_ps((__m128)v);
#elif defined(__aarch64__)
  return (V)vsqrtq_f32((float32x4_t)v);
#else
  V r;
  for (int i = 0; i < VL; i++) r[i] = sqrtf(v[i]);
  return r;
#endif
}

/* ---- functions of a register, to about one unit in the last place ------------------------- */

/* exp by x = i log 2 + r, |r| <= log(2)/2, and the Taylor series of exp(r) to r^7/7! (6e-9). */
INLINE V expv(V x) {
  const float round_by_adding = 12582912.0f; /* 1.5 * 2^23: its last bit is worth one */
  x = blend(x > 88.0f, fill(88.0f), x); /* comparisons with NaN are false: NaN stays */
  x = blend(x < -87.0f, fill(-87.0f), x);
  V shifted = x * 1.44269504f + round_by_adding;
  V i = shifted - round_by_adding;
  V r = x - i * 0.693359375f; /* log 2 in two parts, the first of few bits */
  r = r - i * -2.12194440e-4f;
  V p = r * 1.98412698e-4f + 1.38888889e-3f;
  p = p * r + 8.33333333e-3f;
  p = p * r + 4.16666667e-2f;
  p = p * r + 1.66666667e-1f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  I power = ((I)shifted - (I)fill(round_by_adding) + 127) << 23;
  return p * (V)power;
}

INLINE V sigmoid(V x) { return 1.0f / (1.0f + expv(-x)); }

/* log(1 + e) = 2 atanh(s), s = e / (2 + e) <= 1/3 for e in [0, 1]. */
INLINE V log1pv(V e) {
  V s = e / (2.0f + e), q = s * s;
  V p = q * 0.0666666667f + 0.0769230769f;
  p = p * q + 0.0909090909f;
  p = p * q + 0.111111111f;
  p = p * q + 0.142857143f;
  p = p * q + 0.2f;
  p = p * q + 0.333333333f;
  p = p * q + 1.0f;
  return 2.0f * s * p;
}

/* tanh: an odd polynomial near zero, where 1 - 2/(exp(2x) + 1) would cancel. Coefficients:
   Cephes' tanhf. */
INLINE V tanhv(V x) {
  V q = x * x, size = magnitude(x);
  V p = q * -5.70498872745e-3f + 2.06390887954e-2f;
  p = p * q - 5.37397155531e-2f;
  p = p * q + 1.33314422036e-1f;
  p = p * q - 3.33332819422e-1f;
  V near = p * q * x + x;
  V far = 1.0f - 2.0f / (expv(2.0f * size) + 1.0f);
  return blend(size < 0.625f, near, with_sign_of(far, x));
}

/* erf: an odd polynomial near zero, 1 - exp(polynomial) elsewhere; beyond 4 it is one. The
   coefficients are minimax fits by N. Juffa. */
INLINE V erfv(V x) {
  V t = magnitude(x);
  t = blend(t > 4.0f, fill(4.0f), t);
  V s = t * t;
  V far = (t * -1.72853470e-5f + 3.83197126e-4f) * s + (t * -3.88396438e-3f + 2.42546219e-2f);
  far = far * t - 1.06777877e-1f;
  far = far * t - 6.34846687e-1f;
  far = far * t - 1.28717512e-1f;
  far = 1.0f - expv(far * t - t);
  V near = s * -5.96761703e-4f + 4.99119423e-3f;
  near = near * s - 2.67681349e-2f;
  near = near * s + 1.12819925e-1f;
  near = near * s - 3.76125336e-1f;
  near = near * s + 1.28379166e-1f;
  near = near * t + t;
  return with_sign_of(blend(t > 0.927734375f, far, near), x);
}

INLINE int any(I where) {
  int64_t word[VL / 2], found = 0;
  memcpy(word, &where, sizeof word);
  UNROLL for (int i = 0; i < VL / 2; i++) found |= word[i];
  return found != 0;
}

/* sin and cos by x = i pi/2 + r, |r| <= pi/4, pi/2 in three parts; beyond 1e5, where those no
   longer suffice, by the C library. Coefficients: Cephes' sinf and cosf. */
INLINE void sin_cos(V x, V *sine, V *cosine) {
  if (__builtin_expect(any(magnitude(x) > 1e5f), 0)) {
    V s = x, c = x; /* every entry is replaced; compilers doubt it where V has 16 of them */
    for (int i = 0; i < VL; i++) {
      s[i] = sinf(x[i]);
      c[i] = cosf(x[i]);
    }
    *sine = s;
    *cosine = c;
    return;
  }
  const float round_by_adding = 12582912.0f;
  V shifted = x * 0.636619772f + round_by_adding;
  V i = shifted - round_by_adding;
  V r = x - i * 1.5703125f;
  r = r - i * 4.83751297e-4f;
  r = r - i * 7.54978995e-8f;
  V q = r * r;
  V s = ((q * -1.9515295891e-4f + 8.3321608736e-3f) * q - 1.6666654611e-1f) * q * r + r;
  V c = ((q * 2.443315711809948e-5f - 1.388731625493765e-3f) * q + 4.166664568298827e-2f) * q * q -
        0.5f * q + 1.0f;
  I quadrant = (I)shifted; /* its last two bits count quarter turns */
  I odd = -(quadrant & 1);
  *sine = (V)((I)blend(odd, c, s) ^ ((quadrant & 2) << 30));
  *cosine = (V)((I)blend(odd, s, c) ^ (((quadrant + 1) & 2) << 30));
}

/* ---- activations -------------------------------------------------------------------------- */

/* Numbers shared with the caller. Up to RELU the slope is cheap to tell from the argument, which
   is therefore what is kept for the backward pass; of the others the slope itself is kept. */
enum { IDENTITY, ABS, RELU, TANH, GELU, SILU, SOFTPLUS, ERF, SIN, COS, KEPT };
#define SLOPE_FROM_ARGUMENT(phi) ((phi) <= RELU)

INLINE V value(int phi, V h) {
  switch (phi) {
    case ABS: return magnitude(h);
    case RELU: return (V)((I)h & (h > 0.0f));
    default: return h;
  }
}

/* d * phi'(h), or d * h where h is the slope itself (KEPT). */
INLINE V times_slope(int phi, V d, V h) {
  switch (phi) {
    case ABS: return (V)(((I)d ^ ((I)h & INT32_MIN)) & (h != 0.0f));
    case RELU: return (V)((I)d & (h > 0.0f));
    case KEPT: return d * h;
    default: return d;
  }
}

INLINE V smooth(int phi, V h, V *slope) {
  V value = h, other;
  switch (phi) {
    case TANH:
      value = tanhv(h);
      *slope = 1.0f - value * value;
      break;
    case GELU:
      other = 0.5f + 0.5f * erfv(h * 0.707106781f);
      value = h * other;
      *slope = other + h * expv(h * h * -0.5f) * 0.398942280f;
      break;
    case SILU:
      other = sigmoid(h);
      value = h * other;
      *slope = other * (1.0f + h * (1.0f - other));
      break;
    case SOFTPLUS:
      value = (V)((I)h & (h > 0.0f)) + log1pv(expv(-magnitude(h)));
      *slope = sigmoid(h);
      break;
    case ERF:
      value = erfv(h);
      *slope = expv(-(h * h)) * 1.12837917f;
      break;
    case SIN:
      sin_cos(h, &value, slope);
      break;
    case COS:
      sin_cos(h, &other, &value);
      *slope = -other;
      break;
    default: *slope = fill(1.0f);
  }
  return value;
}

/* ---- what the caller hands over ----------------------------------------------------------- */

struct member {
  int64_t width, width_stride, batch, batch_stride, depth, block_depth, outputs;
  int64_t activation, post, mean_subtraction, layer_norm, sgd;
  double multiplier, beta1, beta2, epsilon, momentum;
  double coupled;         /* weight decay that joins the gradient */
  const double *rates;    /* (steps): the learning rate, */
  const double *retained; /* (steps): and what it leaves of W: 1 - rate * decoupled decay */
  const float *table;    /* (examples, nS): U x */
  const int64_t *order;  /* (steps, B): examples */
  const int64_t *labels; /* (examples) */
  const float *readout;  /* (O, nS) */
  float *weights;        /* (L, k, n, nS), and the optimizer's two moments alike */
  float *first;
  float *second;
  float *kept;       /* (L, k, nS, BS): of each activation its argument or slope */
  float *operands;   /* (L, k, B, nS): what each W multiplies, batch-major */
  float *normalized; /* (L, nS, BS) with LayerNorm: its output, */
  float *scales;     /* (L, BS) and one over its standard deviation */
  float *x;          /* (nS, BS), like the next four: the stream, */
  float *dx;         /* its gradient, */
  float *u;          /* a branch's own activations, */
  float *d;          /* their gradients: at a W's output, */
  float *e;          /* and at its input */
  float *mean;       /* (BS) */
  float *logits;     /* (O, BS) */
};

int64_t depthmup_member_size(void) { return (int64_t)sizeof(struct member); }
int64_t depthmup_register_length(void) { return VL; }

typedef const struct member *M;

INLINE int64_t stacked(M m, int64_t layer, int64_t i) { return layer * m->block_depth + i; }
INLINE float *kept(M m, int64_t layer, int64_t i) {
  return m->kept + stacked(m, layer, i) * m->width_stride * m->batch_stride;
}

/* ---- tiles -------------------------------------------------------------------------------- */

/* Sums of R x C registers: sum[r][c] += sum over t < terms of a[r, t] * x[t, c]. */
#define ACCUMULATE(R, C, a, a_row, a_term, x, x_term, t, terms)                        \
  for (; t < (terms); t++) {                                                           \
    V operand[COLUMNS];                                                                \
    UNROLL for (int c = 0; c < C; c++) operand[c] = load((x) + t * (x_term) + c * VL); \
    UNROLL for (int r = 0; r < R; r++) {                                               \
      const float factor = (a)[r * (a_row) + t * (a_term)];                            \
      UNROLL for (int c = 0; c < C; c++) sum[r][c] += factor * operand[c];             \
    }                                                                                  \
  }

/* out[r, c] (+)= the sum; transposed: a holds the factors of one term next to each other. */
struct product {
  const float *a, *x;
  float *out;
  int64_t a_stride, x_stride, terms;
  int add;
};

INLINE void product_tile(const int R, const int C, const int transposed,
                         const struct product *p) {
  const float *a = p->a, *x = p->x;
  const int64_t stride = p->x_stride;
  const int64_t a_row = transposed ? 1 : p->a_stride, a_term = transposed ? p->a_stride : 1;
  V sum[ROWS][COLUMNS];
  UNROLL for (int r = 0; r < R; r++)
    UNROLL for (int c = 0; c < C; c++)
      sum[r][c] = p->add ? load(p->out + r * stride + c * VL) : fill(0.0f);
  int64_t t = 0;
  ACCUMULATE(R, C, a, a_row, a_term, x, stride, t, p->terms)
  UNROLL for (int r = 0; r < R; r++)
    UNROLL for (int c = 0; c < C; c++) store(p->out + r * stride + c * VL, sum[r][c]);
}

/* The gradient of a tile of W, and its update. */
struct update {
  const float *d, *operand; /* (n, BS) and (B, nS) */
  float *w, *first, *second;
  int64_t batch, batch_stride, width_stride;
  /* Adam: keep1 = 1 - beta1, beta2, keep2 = 1 - beta2, step = lr / (1 - beta1^t),
     unbias = (1 - beta2^t)^(-1/2). SGD: momentum, step = lr. */
  float beta2, keep1, keep2, step, unbias, epsilon, momentum, coupled, retained;
};

INLINE void update_tile(const int R, const int C, const int sgd, const struct update *p) {
  const float *d = p->d, *operand_of = p->operand;
  const int64_t stride = p->width_stride, d_stride = p->batch_stride;
  V sum[ROWS][COLUMNS];
  UNROLL for (int r = 0; r < R; r++)
    UNROLL for (int c = 0; c < C; c++) sum[r][c] = fill(0.0f);
  int64_t t = 0;
  /* The state is asked for while the sum is made, a row at a time so that loads do not queue. */
  ROLLED for (int64_t row = 0; row < R; row++) {
    UNROLL for (int c = 0; c < C; c++) {
      __builtin_prefetch(p->w + row * stride + c * VL, 1);
      __builtin_prefetch(p->first + row * stride + c * VL, 1);
      __builtin_prefetch(p->second + row * stride + c * VL, 1);
    }
    const int64_t until = (row + 1) * p->batch / R;
    ACCUMULATE(R, C, d, d_stride, 1, operand_of, stride, t, until)
  }
  UNROLL for (int r = 0; r < R; r++) {
    UNROLL for (int c = 0; c < C; c++) {
      const int64_t at = r * stride + c * VL;
      V w = load(p->w + at);
      V gradient = sum[r][c] + p->coupled * w;
      V first = load(p->first + at);
      if (sgd) {
        first = p->momentum * first + gradient;
        store(p->first + at, first);
        store(p->w + at, w - p->step * first);
      } else {
        V second = load(p->second + at);
        first = first + p->keep1 * (gradient - first);
        second = p->beta2 * second + p->keep2 * gradient * gradient;
        V change = first / (root(second) * p->unbias + p->epsilon);
        store(p->first + at, first);
        store(p->second + at, second);
        store(p->w + at, p->retained * w - p->step * change);
      }
    }
  }
}

/* Tiles of every size, each a function of its own: tables by [rows][columns]. Rows that are left
   over from sixes are covered by 4 + 2 + 1. */
#if COLUMNS == 4
#define OF_EACH_COLUMN_COUNT(MAKE, R) MAKE(R, 1) MAKE(R, 2) MAKE(R, 3) MAKE(R, 4)
#define NAMES(name, R) {0, name##R##1, name##R##2, name##R##3, name##R##4}
#else
#define OF_EACH_COLUMN_COUNT(MAKE, R) MAKE(R, 1) MAKE(R, 2)
#define NAMES(name, R) {0, name##R##1, name##R##2}
#endif
#define OF_EACH_SIZE(MAKE)                                          \
  OF_EACH_COLUMN_COUNT(MAKE, 1) OF_EACH_COLUMN_COUNT(MAKE, 2)       \
  OF_EACH_COLUMN_COUNT(MAKE, 4) OF_EACH_COLUMN_COUNT(MAKE, 6)
#define TABLE(name)                                                                     \
  {{0}, NAMES(name, 1), NAMES(name, 2), {0}, NAMES(name, 4), {0}, NAMES(name, 6)}

#define MAKE(R, C) \
  static void forward##R##C(const struct product *p) { product_tile(R, C, 0, p); }
OF_EACH_SIZE(MAKE)
#undef MAKE
#define MAKE(R, C) \
  static void backward##R##C(const struct product *p) { product_tile(R, C, 1, p); }
OF_EACH_SIZE(MAKE)
#undef MAKE
#define MAKE(R, C) \
  static void adam##R##C(const struct update *p) { update_tile(R, C, 0, p); }
OF_EACH_SIZE(MAKE)
#undef MAKE
#define MAKE(R, C) \
  static void sgd##R##C(const struct update *p) { update_tile(R, C, 1, p); }
OF_EACH_SIZE(MAKE)
#undef MAKE

typedef void (*ProductTile)(const struct product *);
typedef void (*UpdateTile)(const struct update *);
static const ProductTile forward_tiles[ROWS + 1][COLUMNS + 1] = TABLE(forward);
static const ProductTile backward_tiles[ROWS + 1][COLUMNS + 1] = TABLE(backward);
static const UpdateTile adam_tiles[ROWS + 1][COLUMNS + 1] = TABLE(adam);
static const UpdateTile sgd_tiles[ROWS + 1][COLUMNS + 1] = TABLE(sgd);

INLINE int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t tile_rows(int64_t left) { return left >= 6 ? 6 : left >= 4 ? 4 : left >= 2 ? 2 : 1; }
INLINE int64_t in_registers(int64_t floats) { return (floats + VL - 1) / VL; }

/* out (rows, BS) (+)= a x, x (terms, BS); a is (rows, terms), or stored transposed. */
INLINE void product(int transposed, int64_t rows, int64_t terms, int64_t stride, const float *a,
                    int64_t a_stride, const float *x, float *out, int add) {
  for (int64_t b = 0; b < stride;) {
    const int64_t columns = at_most(COLUMNS, (stride - b) / VL);
    for (int64_t t = 0; t < terms; t += DEPTH) {
      for (int64_t r = 0; r < rows;) {
        const int64_t some = tile_rows(rows - r);
        const struct product p = {
            .a = a + (transposed ? r + t * a_stride : r * a_stride + t),
            .x = x + t * stride + b,
            .out = out + r * stride + b,
            .a_stride = a_stride,
            .x_stride = stride,
            .terms = at_most(DEPTH, terms - t),
            .add = add || t > 0,
        };
        (transposed ? backward_tiles : forward_tiles)[some][columns](&p);
        r += some;
      }
    }
    b += columns * VL;
  }
}

/* ---- transposition ------------------------------------------------------------------------ */

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLES 1
#endif
#endif

#ifdef SHUFFLES
#if VL == 16
#define LOW(a, b) \
  __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH(a, b) \
  __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif VL == 8
#define LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif
#endif

/* A VL x VL block. Interleaving rows i and i + VL/2 rotates the bits of an entry's place (row,
   column) by one; log2(VL) times exchanges row and column. */
INLINE void transpose_block(const float *in, int64_t in_stride, float *out, int64_t out_stride) {
#ifdef SHUFFLES
  V rows[VL], next[VL];
  UNROLL for (int i = 0; i < VL; i++) rows[i] = load(in + i * in_stride);
  UNROLL for (int round = 1; round < VL; round *= 2) {
    UNROLL for (int i = 0; i < VL / 2; i++) {
      next[2 * i] = LOW(rows[i], rows[i + VL / 2]);
      next[2 * i + 1] = HIGH(rows[i], rows[i + VL / 2]);
    }
    UNROLL for (int i = 0; i < VL; i++) rows[i] = next[i];
  }
  UNROLL for (int i = 0; i < VL; i++) store(out + i * out_stride, rows[i]);
#else
  for (int i = 0; i < VL; i++)
    for (int j = 0; j < VL; j++) out[j * out_stride + i] = in[i * in_stride + j];
#endif
}

/* in (rows, in_stride) to out (columns, out_stride), both counts in whole registers. */
static void transpose(const float *in, int64_t in_stride, float *out, int64_t out_stride,
                      int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++)
      transpose_block(in + (i * in_stride + j) * VL, in_stride, out + (j * out_stride + i) * VL,
                      out_stride);
}

/* ---- passes over activations (n, BS) ------------------------------------------------------- */

/* Calls BODY(C) for blocks of C register columns starting at column b: by fours, as one chain of
   additions is slower than four, then by ones. */
#define EACH_COLUMN(stride, b, BODY)                       \
  {                                                        \
    int64_t b = 0;                                         \
    for (; b + 4 * VL <= (stride); b += 4 * VL) { BODY(4) } \
    for (; b < (stride); b += VL) { BODY(1) }               \
  }

/* Calls CALL(phi) with phi a constant, so that each activation gets its own loop. */
#define BY_KIND(phi, CALL)             \
  switch (phi) {                       \
    case ABS: CALL(ABS) break;         \
    case RELU: CALL(RELU) break;       \
    case KEPT: CALL(KEPT) break;       \
    default: CALL(IDENTITY) break;     \
  }
#define BY_ACTIVATION(phi, CALL)       \
  switch (phi) {                       \
    case ABS: CALL(ABS) break;         \
    case RELU: CALL(RELU) break;       \
    case TANH: CALL(TANH) break;       \
    case GELU: CALL(GELU) break;       \
    case SILU: CALL(SILU) break;       \
    case SOFTPLUS: CALL(SOFTPLUS) break; \
    case ERF: CALL(ERF) break;         \
    case SIN: CALL(SIN) break;         \
    case COS: CALL(COS) break;         \
    default: CALL(IDENTITY) break;     \
  }

INLINE void mean_of(const int phi, M m, const float *h, float *mean) {
  const int64_t n = m->width, stride = m->batch_stride;
  const float share = (float)(1.0 / (double)n);
#define BODY(C)                                                                          \
  V sum[C];                                                                              \
  UNROLL for (int c = 0; c < C; c++) sum[c] = fill(0.0f);                                \
  for (int64_t i = 0; i < n; i++)                                                        \
    UNROLL for (int c = 0; c < C; c++)                                                   \
      sum[c] += value(phi, load(h + i * stride + b + c * VL));                           \
  UNROLL for (int c = 0; c < C; c++) store(mean + b + c * VL, sum[c] * share);
  EACH_COLUMN(stride, b, BODY)
#undef BODY
}

/* The mean over features of phi(h), or zeros where it is not to be subtracted. */
static void branch_mean(int phi, M m, const float *h, float *mean) {
  if (!m->mean_subtraction) {
    memset(mean, 0, sizeof(float) * (size_t)m->batch_stride);
    return;
  }
#define CALL(PHI) mean_of(PHI, m, h, mean);
  BY_KIND(phi, CALL)
#undef CALL
}

/* x += multiplier * (phi(h) - mean) */
INLINE void join_with(const int phi, M m, const float *h) {
  const int64_t n = m->width, stride = m->batch_stride;
  const float multiplier = (float)m->multiplier, *means = m->mean;
  float *x = m->x;
#define BODY(C)                                                                          \
  V mean[C];                                                                             \
  UNROLL for (int c = 0; c < C; c++) mean[c] = load(means + b + c * VL);                 \
  for (int64_t i = 0; i < n; i++)                                                        \
    UNROLL for (int c = 0; c < C; c++) {                                                 \
      const int64_t at = i * stride + b + c * VL;                                        \
      store(x + at, load(x + at) + multiplier * (value(phi, load(h + at)) - mean[c]));   \
    }
  EACH_COLUMN(stride, b, BODY)
#undef BODY
}

static void join(int phi, M m, const float *h) {
  branch_mean(phi, m, h, m->mean);
#define CALL(PHI) join_with(PHI, m, h);
  BY_KIND(phi, CALL)
#undef CALL
}

/* d = multiplier * (dx - its mean) * phi'(h) */
INLINE void split_with(const int phi, M m, const float *h) {
  const int64_t n = m->width, stride = m->batch_stride;
  const float multiplier = (float)m->multiplier, *means = m->mean, *dx = m->dx;
  float *out = m->d;
#define BODY(C)                                                                          \
  V mean[C];                                                                             \
  UNROLL for (int c = 0; c < C; c++) mean[c] = load(means + b + c * VL);                 \
  for (int64_t i = 0; i < n; i++)                                                        \
    UNROLL for (int c = 0; c < C; c++) {                                                 \
      const int64_t at = i * stride + b + c * VL;                                        \
      V d = multiplier * (load(dx + at) - mean[c]);                                      \
      store(out + at, phi == IDENTITY ? d : times_slope(phi, d, load(h + at)));          \
    }
  EACH_COLUMN(stride, b, BODY)
#undef BODY
}

static void split(int phi, M m, const float *h) {
  branch_mean(IDENTITY, m, m->dx, m->mean);
#define CALL(PHI) split_with(PHI, m, h);
  BY_KIND(phi, CALL)
#undef CALL
}

/* u = phi(h), and what the backward pass needs of h into keep. */
INLINE void activate_with(const int phi, M m, const float *h, float *keep, float *u) {
  const int64_t size = m->width * m->batch_stride;
  for (int64_t at = 0; at < size; at += VL) {
    V argument = load(h + at), slope = argument;
    V result = SLOPE_FROM_ARGUMENT(phi) ? value(phi, argument) : smooth(phi, argument, &slope);
    if (!SLOPE_FROM_ARGUMENT(phi) || keep != h) store(keep + at, slope);
    store(u + at, result);
  }
}

static void activate(M m, const float *h, float *keep, float *u) {
#define CALL(PHI) activate_with(PHI, m, h, keep, u);
  BY_ACTIVATION(m->activation, CALL)
#undef CALL
}

/* e *= phi'(h) */
INLINE void slope_with(const int phi, M m, const float *h, float *e) {
  const int64_t size = m->width * m->batch_stride;
  for (int64_t at = 0; at < size; at += VL)
    store(e + at, times_slope(phi, load(e + at), load(h + at)));
}

static void multiply_by_slope(int phi, M m, const float *h, float *e) {
#define CALL(PHI) slope_with(PHI, m, h, e);
  BY_KIND(phi, CALL)
#undef CALL
}

static void add_to(M m, float *to, const float *e) {
  const int64_t size = m->width * m->batch_stride;
  for (int64_t at = 0; at < size; at += VL) store(to + at, load(to + at) + load(e + at));
}

/* LayerNorm without gains: z = (x - mean) * scale, scale = (variance + 1e-5)^(-1/2). */
static void normalize(M m, float *z, float *scale) {
  const int64_t n = m->width, stride = m->batch_stride;
  const float share = (float)(1.0 / (double)n);
  mean_of(IDENTITY, m, m->x, m->mean);
  for (int64_t b = 0; b < stride; b += VL) {
    V mean = load(m->mean + b), sum = fill(0.0f);
    for (int64_t i = 0; i < n; i++) {
      V centred = load(m->x + i * stride + b) - mean;
      sum += centred * centred;
    }
    V factor = 1.0f / root(sum * share + 1e-5f);
    for (int64_t i = 0; i < n; i++)
      store(z + i * stride + b, (load(m->x + i * stride + b) - mean) * factor);
    store(scale + b, factor);
  }
}

/* dx += (e - mean(e) - z mean(e z)) * scale */
static void leave_norm(M m, const float *e, const float *z, const float *scale) {
  const int64_t n = m->width, stride = m->batch_stride;
  const float share = (float)(1.0 / (double)n);
  for (int64_t b = 0; b < stride; b += VL) {
    V sum = fill(0.0f), along = fill(0.0f), factor = load(scale + b);
    for (int64_t i = 0; i < n; i++) {
      V here = load(e + i * stride + b);
      sum += here;
      along += here * load(z + i * stride + b);
    }
    sum *= share;
    along *= share;
    for (int64_t i = 0; i < n; i++) {
      const int64_t at = i * stride + b;
      store(m->dx + at, load(m->dx + at) + (load(e + at) - sum - load(z + at) * along) * factor);
    }
  }
}

/* ---- a step ------------------------------------------------------------------------------- */

/* x = U xi for the examples of one step. */
static void enter(M m, const int64_t *examples) {
  const int64_t n_stride = m->width_stride, b_stride = m->batch_stride;
  float *rows = m->e; /* (BS, nS), as large as (nS, BS) */
  for (int64_t b = 0; b < m->batch; b++)
    memcpy(rows + b * n_stride, m->table + examples[b] * n_stride,
           sizeof(float) * (size_t)n_stride);
  memset(rows + m->batch * n_stride, 0,
         sizeof(float) * (size_t)((b_stride - m->batch) * n_stride));
  transpose(rows, n_stride, m->x, b_stride, b_stride / VL, in_registers(m->width));
}

/* x[0] to x[L], keeping what the backward pass needs. */
static void forward(M m) {
  const int64_t n = m->width, n_stride = m->width_stride, b_stride = m->batch_stride;
  const int64_t k = m->block_depth, area = n_stride * b_stride;
  const int cheap = SLOPE_FROM_ARGUMENT(m->activation);
  for (int64_t layer = 0; layer < m->depth; layer++) {
    const float *entered = m->x;
    if (m->layer_norm) {
      normalize(m, m->normalized + layer * area, m->scales + layer * b_stride);
      entered = m->normalized + layer * area;
    }
    for (int64_t i = 0; i < k; i++) {
      const float *operand = i ? m->u : entered;
      float *out = m->d;
      if (!m->post) {
        activate(m, i ? kept(m, layer, i) : entered, kept(m, layer, i), m->u);
        operand = m->u;
        if (i + 1 < k) out = kept(m, layer, i + 1);
      } else {
        out = kept(m, layer, i);
      }
      transpose(operand, b_stride, m->operands + stacked(m, layer, i) * area, n_stride,
                in_registers(n), b_stride / VL);
      product(0, n, n, b_stride, m->weights + stacked(m, layer, i) * n * n_stride, n_stride,
              operand, out, 0);
      if (m->post && (i + 1 < k || !cheap)) activate(m, out, out, m->u);
    }
    if (!m->post)
      join(IDENTITY, m, m->d);
    else if (cheap)
      join((int)m->activation, m, kept(m, layer, k - 1));
    else
      join(IDENTITY, m, m->u);
  }
}

/* The mean cross entropy over the batch; logits become its gradient with respect to them. */
static double loss_and_gradient(M m, const int64_t *examples) {
  const int64_t stride = m->batch_stride, outputs = m->outputs;
  product(0, outputs, m->width, stride, m->readout, m->width_stride, m->x, m->logits, 0);
  double total = 0;
  for (int64_t b = 0; b < stride; b += VL) {
    float *at = m->logits + b;
    V top = load(at);
    for (int64_t o = 1; o < outputs; o++) {
      V logit = load(at + o * stride);
      top = blend(logit > top, logit, top);
    }
    const int64_t real = at_most(VL, m->batch - b);
    float chosen[VL];
    for (int64_t i = 0; i < real; i++)
      chosen[i] = at[m->labels[examples[b + i]] * stride + i] - top[i];
    V sum = fill(0.0f);
    for (int64_t o = 0; o < outputs; o++) {
      V share = expv(load(at + o * stride) - top);
      sum += share;
      store(at + o * stride, share);
    }
    for (int64_t i = 0; i < real; i++) total += (double)(logf(sum[i]) - chosen[i]);
    V factor = fill(0.0f);
    for (int64_t i = 0; i < real; i++) factor[i] = 1.0f / (sum[i] * (float)m->batch);
    for (int64_t o = 0; o < outputs; o++)
      store(at + o * stride, load(at + o * stride) * factor);
    for (int64_t i = 0; i < real; i++)
      at[m->labels[examples[b + i]] * stride + i] -= 1.0f / (float)m->batch;
  }
  return total / (double)m->batch;
}

/* From the logits' gradient back to x[0], updating each matrix once its gradient is known. */
static void backward(M m, struct update step) {
  const int64_t n = m->width, n_stride = m->width_stride, b_stride = m->batch_stride;
  const int64_t k = m->block_depth, area = n_stride * b_stride;
  const int slope = SLOPE_FROM_ARGUMENT(m->activation) ? (int)m->activation : KEPT;
  const UpdateTile(*update)[COLUMNS + 1] = m->sgd ? sgd_tiles : adam_tiles;
  product(1, n, m->outputs, b_stride, m->readout, n_stride, m->logits, m->dx, 0);
  for (int64_t layer = m->depth - 1; layer >= 0; layer--) {
    split(m->post ? slope : IDENTITY, m, kept(m, layer, k - 1));
    float *d = m->d, *e = m->e;
    for (int64_t i = k - 1; i >= 0; i--) {
      const int64_t which = stacked(m, layer, i) * n * n_stride;
      const int direct = m->post && i == 0 && !m->layer_norm; /* W's input is the stream */
      for (int64_t j = 0; j < n;) {
        const int64_t columns = at_most(COLUMNS, in_registers(n - j));
        product(1, at_most(columns * VL, n - j), n, b_stride, m->weights + which + j, n_stride, d,
                (direct ? m->dx : e) + j * b_stride, direct);
        step.operand = m->operands + stacked(m, layer, i) * area + j;
        for (int64_t r = 0; r < n;) {
          const int64_t rows = tile_rows(n - r), at = which + r * n_stride + j;
          step.d = d + r * b_stride;
          step.w = m->weights + at;
          step.first = m->first + at;
          step.second = m->second + at;
          update[rows][columns](&step);
          r += rows;
        }
        j += columns * VL;
      }
      if (direct) continue;
      if (!m->post)
        multiply_by_slope(slope, m, kept(m, layer, i), e);
      else if (i)
        multiply_by_slope(slope, m, kept(m, layer, i - 1), e);
      if (i) {
        float *swap = d;
        d = e;
        e = swap;
      } else if (m->layer_norm) {
        leave_norm(m, e, m->normalized + layer * area, m->scales + layer * b_stride);
      } else {
        add_to(m, m->dx, e);
      }
    }
  }
}

/* The factors of the optimizer in step number t = 1, 2, ... */
static struct update step_of(M m, int64_t t) {
  const double bias1 = m->sgd ? 1.0 : 1 - pow(m->beta1, (double)t);
  const double bias2 = m->sgd ? 1.0 : 1 - pow(m->beta2, (double)t);
  return (struct update){
      .batch = m->batch,
      .batch_stride = m->batch_stride,
      .width_stride = m->width_stride,
      .beta2 = (float)m->beta2,
      .keep1 = (float)(1 - m->beta1),
      .keep2 = (float)(1 - m->beta2),
      .step = (float)(m->rates[t - 1] / bias1),
      .unbias = (float)(1 / sqrt(bias2)),
      .epsilon = (float)m->epsilon,
      .momentum = (float)m->momentum,
      .coupled = (float)m->coupled,
      .retained = (float)m->retained[t - 1],
  };
}

/* Numbers too small for full precision count as zero while a member is trained: moments that
   fade away would otherwise slow every step by an order of magnitude. */
#if defined(__SSE__)
static uint64_t flush_denormals(void) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040); /* flush to zero, denormals are zero */
  return before;
}
static void restore_denormals(uint64_t before) { _mm_setcsr((unsigned)before); }
#elif defined(__aarch64__)
static uint64_t flush_denormals(void) {
  uint64_t before;
  __asm__ volatile("mrs %0, fpcr" : "=r"(before));
  __asm__ volatile("msr fpcr, %0" : : "r"(before | (UINT64_C(1) << 24)));
  return before;
}
static void restore_denormals(uint64_t before) {
  __asm__ volatile("msr fpcr, %0" : : "r"(before));
}
#else
static uint64_t flush_denormals(void) { return 0; }
static void restore_denormals(uint64_t before) { (void)before; }
#endif

/* Take steps [start, stop), losses[step] being the loss before it. Ends before the first step
   whose loss is above limit or not a number; returns where it ended. */
int64_t depthmup_advance(M m, int64_t start, int64_t stop, double limit, float *losses) {
  const uint64_t before = flush_denormals();
  int64_t t = start;
  for (; t < stop; t++) {
    const int64_t *examples = m->order + t * m->batch;
    enter(m, examples);
    forward(m);
    const float loss = (float)loss_and_gradient(m, examples);
    losses[t] = loss;
    if (!((double)loss <= limit)) break;
    backward(m, step_of(m, t + 1));
  }
  restore_denormals(before);
  return t;
}
