// SPDX-License-Identifier: BSD-2-Clause
// The sum of four floats over all ranks, through the switch:  allreduce SWITCH-IPV4 JOB RANK SIZE
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <inagg/uapi.h>

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

int main(int argc, char **argv)
{
	struct sockaddr_inagg here = { .sinagg_family = AF_INAGG }, there = { .sinagg_family = AF_INAGG };
	float tensor[4] = { 1, 2.5, -3, 0 };
	char address[64];

	check(argc == 5, "usage: allreduce SWITCH-IPV4 JOB RANK SIZE");
	here.sinagg_rank = tensor[3] = atoi(argv[3]);
	there.sinagg_job = atoi(argv[2]);
	there.sinagg_size = atoi(argv[4]);
	snprintf(address, sizeof(address), "::ffff:%s", argv[1]);
	check(inet_pton(AF_INET6, address, there.sinagg_addr) == 1, "the switch's address");

	int fd = socket(AF_INAGG, SOCK_SEQPACKET, 0);
	check(fd >= 0, "socket");
	check(!bind(fd, (struct sockaddr *)&here, sizeof(here)), "bind");
	check(!connect(fd, (struct sockaddr *)&there, sizeof(there)), "connect");
	check(send(fd, tensor, sizeof(tensor), 0) == sizeof(tensor), "send");
	check(recv(fd, tensor, sizeof(tensor), 0) == sizeof(tensor), "recv");
	printf("%g %g %g %g\n", tensor[0], tensor[1], tensor[2], tensor[3]);
	return 0;
}
