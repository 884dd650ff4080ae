/* disk - calls of fsync come here (--wrap).  They wait for, and fail by, what the test has set. */
#include "disk.h"

#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t disk_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t disk_changed = PTHREAD_COND_INITIALIZER;
static int is_held, disk_errno, n_held, n_spoilt; /* guarded by disk_lock */

int __real_fsync(int fd);
int __wrap_fsync(int fd);

/* The file's last byte becomes another one. */
static int disk_spoil(int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    return pwrite(fd, "\xa5", 1, st.st_size - 1) == 1 && __real_fsync(fd) == 0;
}

int __wrap_fsync(int fd)
{
    int e;

    pthread_mutex_lock(&disk_lock);
    n_held++;
    pthread_cond_broadcast(&disk_changed);
    while (is_held)
        pthread_cond_wait(&disk_changed, &disk_lock);
    n_held--;
    e = disk_errno;
    if (n_spoilt > 0)
        n_spoilt -= disk_spoil(fd);
    pthread_mutex_unlock(&disk_lock);
    errno = e;
    return e ? -1 : __real_fsync(fd);
}

void set_disk(int hold, int errnum)
{
    pthread_mutex_lock(&disk_lock);
    is_held = hold;
    disk_errno = errnum;
    pthread_cond_broadcast(&disk_changed);
    pthread_mutex_unlock(&disk_lock);
}

void spoil_disk(int n_files)
{
    pthread_mutex_lock(&disk_lock);
    n_spoilt = n_files;
    pthread_mutex_unlock(&disk_lock);
}

void wait_held(void)
{
    pthread_mutex_lock(&disk_lock);
    while (!n_held)
        pthread_cond_wait(&disk_changed, &disk_lock);
    pthread_mutex_unlock(&disk_lock);
}
