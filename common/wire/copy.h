/* copy - structs of ours as messages, and back, by rows of members (wire/fields.h).
 *
 * The field's rule, the member's size, and is_chars say what a member is:
 *
 *   RULE_INT, RULE_ENUM, RULE_BOOL   an integer of 4 or 8 bytes
 *   RULE_REAL, RULE_AMOUNT           a double
 *   RULE_TEXT, RULE_INJECT           a char * (NULL for an empty text), or an array of char
 *   RULE_HASH                        a struct hash128
 *   RULE_BYTES                       a struct blob
 *   repeated RULE_BYTES              a struct blob * and an int that counts them
 *   repeated RULE_MESSAGE            an array of structs, by rows of their own, and an int
 *
 * Threads: any; no state. */
#ifndef WIRE_COPY_H
#define WIRE_COPY_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

struct blob { /* bytes owned by the struct that holds the blob */
    uint8_t *data;
    size_t len;
};

struct blob blob_of(const void *data, size_t len); /* a copy */

struct copy_member {
    size_t at, size; /* in our struct; size 0: the field lands nowhere */
    size_t count_at; /* of a repeated field: the int that counts the elements */
    int is_chars;    /* an array of char, of whatever size; else a text is a char * */
};

struct copy_rows { /* one message and one struct of ours */
    const ProtobufCMessageDescriptor *message;
    const struct copy_member *member; /* [message->n_fields] */
    size_t size;                      /* of our struct, for elements of arrays */
};

/* Rows of the elements of a repeated field, by their message; supplied by the caller's room. */
typedef const struct copy_rows *copy_rows_of(const ProtobufCMessageDescriptor *message);

struct copier {
    const struct copy_rows *rows;
    copy_rows_of *elements; /* NULL: there are no repeated messages */
};

/* A new message that holds what `ours` says, made fit for the rules: integers are clamped to their
 * limits, texts cleaned and cut, amounts that are negative or not finite become 0.  It borrows
 * blobs from `ours`; all else is in `a`.  Fields that land nowhere have their defaults. */
ProtobufCMessage *copy_pack(const struct copier *c, const void *ours, struct arena *a);

/* Fill the members of *ours, which hold nothing yet, from a checked message. */
void copy_unpack(const struct copier *c, const ProtobufCMessage *m, void *ours);

/* Free what the members of *ours own. */
void copy_free(const struct copier *c, void *ours);

#endif
