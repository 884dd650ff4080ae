/* table - the predictions as a table of text (CSV), beside the array of the logits.
 *
 *     file,class,probability     classes: the largest logit's, and its softmax
 *     file,cat,dog               several labels a sample (bce): the sigmoid of each
 *     file,value                 numbers in the data's units; several: value_0,value_1 ...
 *
 * A picture that cannot be read (data.on_corrupt: skip), and a sample whose logits are not finite,
 * have neither class nor probability.  In
 * place of `file` stands `sample`, a number from 0 on, where samples are not files; of a table it
 * is that of the row in the file.  A class without a name is its number.  Fields are quoted as RFC
 * 4180 says, and lines end with a line feed.
 *
 * Threads: the engine's.
 * Errors:  ERR_IO names the path; ERR_CONFIG: another file is there. */
#ifndef JUDGE_TABLE_H
#define JUDGE_TABLE_H

#include "ckpt/rows_file.h"
#include "judge/outputs.h"

enum { TABLE_MOST_COLUMNS = 1024 };

/* 1: the outputs make a table: one class a sample, or at most so many numbers. */
int table_can(const struct outputs *o, int64_t n_outputs);

/* OUT.csv for OUT.npy, for free(). */
char *table_path(const char *npy);

/* Write it from the rows of the array, which is whole, and whose targets are still learnt ones
 * (data/targets.h). */
int table_write(const struct outputs *o, const char *path, const struct rows_file *from,
                int64_t n_outputs, struct err *err);

#endif
