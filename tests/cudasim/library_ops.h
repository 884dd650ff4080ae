/* library_ops - the operators that libraries compute on a GPU. */
#ifndef TESTS_CUDASIM_LIBRARY_OPS_H
#define TESTS_CUDASIM_LIBRARY_OPS_H

int is_library_op(int op); /* an enum op */

#endif
