// SPDX-License-Identifier: MIT
// library.js: replaces functions of emscripten 3.1.6 that assume 32-bit pointers and sizes, which have 64 bits with -sMEMORY64=2. An
// iovec is an address and a size.
mergeInto(LibraryManager.library, {
  $vectors__deps: ["$FS", "$SYSCALLS"],
  $vectors: function(fd, iov, n, pnum, each) {
    var stream = SYSCALLS.getStreamFromFD(fd), sum = 0, at = Number(iov) / 8;
    try {
      for (var i = 0; i < Number(n); i++) {
        var size = Number(HEAP64[at + 2 * i + 1]), done = each(stream, Number(HEAP64[at + 2 * i]), size, sum);
        sum += done;
        if (done < size) {
          break;
        }
      }
    } catch (error) {
      if (!(error instanceof FS.ErrnoError)) {
        throw error;
      }
      return error.errno;
    }
    HEAP64[Number(pnum) / 8] = BigInt(sum);
    return 0;
  },
  fd_read__deps: ["$vectors"],
  fd_read: function(fd, iov, n, pnum) {
    return vectors(fd, iov, n, pnum, function(stream, at, size) { return FS.read(stream, HEAP8, at, size); });
  },
  fd_write__deps: ["$vectors"],
  fd_write: function(fd, iov, n, pnum) {
    return vectors(fd, iov, n, pnum, function(stream, at, size) { return FS.write(stream, HEAP8, at, size); });
  },
  fd_pread__deps: ["$vectors"],
  fd_pread: function(fd, iov, n, offset, pnum) {
    return vectors(fd, iov, n, pnum, function(stream, at, size, sum) { return FS.read(stream, HEAP8, at, size, Number(offset) + sum); });
  },
  clock_gettime: function(clock, time) {
    var now = performance.timeOrigin + performance.now(), at = Number(time) / 8;
    HEAP64[at] = BigInt(Math.floor(now / 1000));
    HEAP64[at + 1] = BigInt(Math.floor(now % 1000 * 1e6));
    return 0;
  },
  fd_seek__deps: ["$FS", "$SYSCALLS"],
  fd_seek: function(fd, offset, whence, result) {
    try {
      HEAP64[Number(result) / 8] = BigInt(FS.llseek(SYSCALLS.getStreamFromFD(fd), Number(offset), whence));
      return 0;
    } catch (error) {
      if (!(error instanceof FS.ErrnoError)) {
        throw error;
      }
      return error.errno;
    }
  },
  emscripten_memcpy_big: function(to, from, size) {
    HEAPU8.copyWithin(Number(to), Number(from), Number(from) + Number(size));
    return to;
  },
  emscripten_resize_heap__deps: ["$emscripten_realloc_buffer"],
  emscripten_resize_heap: function(size) {
    var more = Math.max(Number(size), HEAPU8.length * 1.2); // fewer copies of the memory than with the smallest size
    return emscripten_realloc_buffer(Math.min(Math.ceil(more / 65536) * 65536, 2147418112)) ? 1 : 0;
  },
  environ_sizes_get: function(n, size) { // there are no environment variables
    HEAP64[Number(n) / 8] = HEAP64[Number(size) / 8] = BigInt(0);
    return 0;
  },
  environ_get: function() {
    return 0;
  },
  secure_getenv: function() { // missing in emscripten's libc
    return BigInt(0);
  },
  getrandom: function(to, size) {
    for (var i = 0; i < Number(size); i++) {
      HEAPU8[Number(to) + i] = Math.random() * 256;
    }
    return size;
  },
  // There is one processor and there are no libraries. 52: ENOSYS
  dl_iterate_phdr: function() { return 0; },
  sched_getcpu: function() { return 0; },
  sched_getaffinity: function() { return -1; },
  __sched_cpucount: function() { return 1; },
  pthread_getaffinity_np: function() { return 52; },
  pthread_setaffinity_np: function() { return 52; },
  pthread_setschedparam: function() { return 52; },
  emscripten_get_heap_max: function() {
    return BigInt(2147483648);
  },
});
