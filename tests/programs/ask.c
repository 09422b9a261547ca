/* `ask SOCKET`: sends its standard input to a unix socket, and prints whether that is `answered` or the connection is `closed`. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  char bytes[4096];
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  ssize_t length = read(STDIN_FILENO, bytes, sizeof bytes);
  if (argc < 2 || length <= 0)
    return 2;
  snprintf(at.sun_path, sizeof at.sun_path, "%s", argv[1]);
  if (connect(fd, (struct sockaddr *)&at, sizeof at) != 0) {
    perror(argv[1]);
    return 1;
  }
  signal(SIGPIPE, SIG_IGN);
  /* The connection may be closed already; then nothing arrives either. */
  if (write(fd, bytes, (size_t)length) < 0)
    bytes[0] = 0;
  printf("%s\n", read(fd, bytes, 1) == 1 ? "answered" : "closed");
  return 0;
}
