/* Debian's libgloo-dev leaves out this header, which gloo/transport/tcp/pair.h needs.  pair.h and
 * context.h use two things of it: a box around a std::weak_ptr, by value, and another by reference.
 * Used only where Gloo's own is missing; the test coll/gloo_abi compares the sizes of what contains
 * it with those in the library. */
#pragma once

#include <memory>

namespace gloo
{

template <typename T> class NonOwningPtr;

template <typename T> class WeakNonOwningPtr
{
  private:
    std::weak_ptr<T> ptr_;
};

} // namespace gloo
