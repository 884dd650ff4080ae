/* folder - an empty folder for one test, the current folder while the test runs; at the end it is
 * removed with all it holds. */
#ifndef TESTS_REPORT_FOLDER_H
#define TESTS_REPORT_FOLDER_H

int folder_setup(void **state); /* *state: the folder's path */
int folder_teardown(void **state);

char *read_text(const char *path); /* the whole file; the caller frees it */
void write_text(const char *path, const char *text);

#endif
