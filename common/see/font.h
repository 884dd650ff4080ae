/* font - letters of 5 x 7 pixels for pictures: those of ASCII that can be printed.
 *
 * Threads: any; no state. */
#ifndef SEE_FONT_H
#define SEE_FONT_H

enum { FONT_WIDTH = 5, FONT_HEIGHT = 8 /* with descenders */ };

/* 1: the pixel of c's letter, or of '?', at x to the right and y down is set. */
int font_pixel(char c, int x, int y);

#endif
