/* installed - the folders where this program looks for plugins of its own, in their order.
 *
 * They are the program's folder, ../lib and ../common/plugin (of a build folder) beside that, and
 * the libdir of the installation.
 *
 * Threads: any. */
#ifndef BASE_INSTALLED_H
#define BASE_INSTALLED_H

enum { INSTALLED_DIRS = 4 };

/* Fill dir[] with texts from malloc.  Returns how many there are: without /proc only the last. */
int installed_dirs(char *dir[INSTALLED_DIRS]);

/* The path of the first file of this name, from malloc; NULL: no folder has it. */
char *installed_find(const char *name);

#endif
