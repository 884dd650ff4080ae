/* files_doubt - warnings about a list of pictures.
 *
 * Threads: any. */
#ifndef DATA_FILES_DOUBT_H
#define DATA_FILES_DOUBT_H

#include "data/dataset.h"
#include "data/files.h"

/* Tell of pictures of other kinds, of keys that come again in a tar file, and of members that are
 * left out. */
void files_tell(const struct files *f, const struct dataset_request *request);

/* As folders in class folders are walked, a path one level too high has one class. */
void files_doubt_one_class(const struct files *f, const struct dataset_request *request);

/* The classes of tar files are numbers, of which some may lack samples.  A class folder without
 * files is an error elsewhere. */
int files_doubt_classes(const struct files *f, const struct dataset_request *request,
                        struct err *err);

#endif
